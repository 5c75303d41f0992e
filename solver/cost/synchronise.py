"""What follows the last backward: gradient traffic that nothing hides, the optimizer step, gathering of updated weights."""
from dataclasses import dataclass

import numpy as np

from solver.catalog.efficiency import Stack
from solver.cost.alike import chosen, distinct_pairs, larger, many, smaller, where
from solver.cost.collectives import all_reduce_s, all_reduce_slope
from solver.cost.communicators import apart_path, data_paths
from solver.cost.fabric import outermost
from solver.cost.machine import Machine
from solver.cost.setting import Setting, overlapping, remembered
from solver.cost.unit import UnitSpec
from solver.domain.layout import Holders


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Parameters on one GPU, before ZeRO: sharded over the data ranks (dense) or over the expert-data ranks (experts)."""

    dense: float = 0.0
    experts: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTraffic:
    """Gradient and weight traffic of one unit: ranks, and affine all-reduce times (constant, seconds per byte) of both communicators."""

    ranks: int
    expert_ranks: int
    dense: tuple[float, float]
    experts: tuple[float, float]

    def gather_s(self, holding: Holding, element_bytes: float) -> float:
        """Seconds to gather (or reduce-scatter) a holding once."""
        constant = (self.dense[0] + where(holding.experts > 0.0, self.experts[0], 0.0)) / 2.0
        return constant + element_bytes * (holding.dense * self.dense[1] + holding.experts * self.experts[1]) / 2.0


def data_ranks(spec: UnitSpec) -> int:
    """Ranks that hold the same dense weights and average their gradients: replicas * dp * cp."""
    return spec.replicas * spec.dp * spec.cp


def expert_data_ranks(spec: UnitSpec) -> int:
    """Ranks that hold the same experts: replicas * dp * cp * tp / (ep * etp), at least one."""
    return larger(1, data_ranks(spec) * spec.tp // (spec.ep * spec.etp))


def data_traffic(setting: Setting, spec: UnitSpec) -> DataTraffic:
    """The communicators of a unit, each at its slowest node group."""
    if spec.holders is not None:
        return _between_unlike(setting, spec, spec.holders)
    dense = _slowest(setting, spec.groups, data_ranks(spec), spec.tp)
    ranks, experts = expert_data_ranks(spec), dense
    if setting.model.moe is not None:
        constant, slope = _slowest(setting, spec.groups, ranks, spec.ep * spec.etp)
        experts = constant, slope                          # communicators of their own, however equal
    return DataTraffic(ranks=data_ranks(spec), expert_ranks=ranks, dense=dense, experts=experts)


def _between_unlike(setting: Setting, spec: UnitSpec, holders: Holders) -> DataTraffic:
    """The communicators of a stage whose layers other pipelines hold elsewhere, at other tensor degrees.

    Ranks of the same slices average them: those of one pipeline side by side, pipelines apart. A rank of a smaller tensor degree takes part in
    several such groups at once, and moves what it holds through the same link.
    """
    copies, stride = max(1, spec.dp * spec.cp * spec.tp // (spec.ep * spec.etp)), spec.ep * spec.etp
    dense = all_reduce_slope(apart_path(setting, spec.groups[0], holders, spec.dp * spec.cp, spec.tp))
    experts = dense
    if setting.model.moe is not None:
        constant, slope = all_reduce_slope(apart_path(setting, spec.groups[0], holders, copies, stride))
        experts = constant, slope                          # communicators of their own, however equal
    return DataTraffic(ranks=data_ranks(spec), expert_ranks=copies * holders.pipelines, dense=dense, experts=experts)


@remembered
def _slowest(setting: Setting, groups: tuple[str, ...], ranks: int, stride: int) -> tuple[float, float]:
    if many(ranks, stride):
        pairs, index = distinct_pairs(ranks, stride)
        constants, slopes = np.array([_slowest(setting, groups, n, s) for n, s in pairs]).T
        return constants[index], slopes[index]
    if ranks == 1:
        return 0.0, 0.0
    lines = [all_reduce_slope(path) for path in data_paths(setting, groups, ranks, stride)]
    slowest = max(s[0] for s in lines), max(s[1] for s in lines)
    if len(groups) == 1 or setting.collectives is None:
        return slowest
    alone = [all_reduce_slope(data_paths(setting, (name,), ranks, stride)[0]) for name in groups]            # what was measured across groups
    return max(slowest[0], min(s[0] for s in alone)), max(slowest[1], min(s[1] for s in alone))             # counts no less than in the best alone


def traffic_s(setting: Setting, spec: UnitSpec, traffic: DataTraffic, holding: Holding) -> tuple[float, float]:
    """Seconds of (gradient, weight) traffic around the step for a holding, were none of it hidden, without the constant part.

    ZeRO-0 all-reduces gradients; ZeRO-1 reduce-scatters them and gathers weights (about 2 Psi both); ZeRO-2 scatters gradients during backward and
    gathers weights here; ZeRO-3 gathers in every micro-batch instead.
    """
    gradient, weight = setting.gradient_element, setting.activation_element
    passes = chosen((2.0 * gradient, gradient, 0.0, 0.0), spec.zero_stage), chosen((0.0, weight, weight, 0.0), spec.zero_stage)
    once = (holding.dense * traffic.dense[1] + holding.experts * traffic.experts[1]) / 2.0
    return passes[0] * once, passes[1] * once


def latency_s(spec: UnitSpec, traffic: DataTraffic) -> float:
    """Latency of the collectives behind the last backward."""
    latency = traffic.dense[0] + (traffic.experts[0] if traffic.experts is not traffic.dense else 0.0)
    return chosen((1.0, 1.0, 0.5, 0.0), spec.zero_stage) * latency


def optimizer_s(setting: Setting, machine: Machine, spec: UnitSpec, traffic: DataTraffic, holding: Holding) -> float:
    """Seconds of the optimizer step: moved bytes per parameter over half the memory bandwidth, for the shard that this GPU updates."""
    shards, expert_shards = shard_counts(spec, traffic)
    owned = holding.dense / shards + holding.experts / expert_shards
    return owned * setting.optimizer.moved_bytes / (machine.memory_bytes_s * setting.constants.data_parallel.optimizer_bandwidth_share)


def owned_share(spec: UnitSpec, traffic: DataTraffic, holding: Holding) -> float:
    """Share of all the parameters of one tensor rank, experts unsplit, that a GPU updates."""
    shards, expert_shards = shard_counts(spec, traffic)
    return (holding.dense / shards + holding.experts / expert_shards) / (holding.dense + holding.experts * spec.ep * spec.etp)


def shard_counts(spec: UnitSpec, traffic: DataTraffic) -> tuple[float, float]:
    """Over how many ranks ZeRO shards dense weights and experts: all data ranks, or a smaller shard group."""
    limit, sharded = spec.shard_group or traffic.ranks, spec.zero_stage > 0
    return where(sharded, 1.0 * smaller(limit, traffic.ranks), 1.0), where(sharded, 1.0 * smaller(limit, traffic.expert_ranks), 1.0)


def exposed_s(setting: Setting, stack: Stack, spec: UnitSpec, traffic_seconds: tuple[float, float], forward_s: float, backward_s: float) -> float:
    """What of a layer's traffic shows: gradients hide behind the backward of what still runs, weights behind the forward of what already may.

    Of both, the stack overlaps a share; the first and the last bucket never hide. `spec.hiding_rounds` micro-batches run meanwhile. ZeRO-2 gathers
    weights layer by layer beside the first forward, as ZeRO-3 does beside every one: too little for DeepSpeed, which gathers behind its step.
    """
    least = setting.constants.data_parallel.exposed_share
    hidden = overlapping(setting, stack)[0] * spec.hiding_rounds
    gradients, weights = traffic_seconds
    exposed = where(spec.zero_stage == 2, visible_s(setting, forward_s, weights) - forward_s, larger(least * weights, weights - hidden * forward_s))
    return larger(least * gradients, gradients - hidden * backward_s) + exposed


def visible_s(setting: Setting, compute_s: float, beside_s: float) -> float:
    """Seconds of compute with communication beside it: max(compute + slowdown * min(compute, communication), communication)."""
    return larger(compute_s + setting.constants.communication.overlap_slowdown * smaller(compute_s, beside_s), beside_s)


def tied_gradient_s(setting: Setting, spec: UnitSpec) -> float:
    """All-reduce of the gradient of an embedding that several stages hold, over the slowest outermost tier of the unit: V h / t gradients.

    Tied embeddings are on the first and on the last stage, those of an encoder-decoder where encoder and decoder begin.
    """
    if not (setting.model.tied_embeddings or setting.model.encoder_layers):
        return 0.0
    size = setting.model.vocab_size * setting.model.hidden_size / spec.tp * setting.gradient_element
    seconds = 0.0
    for name in spec.groups:
        seconds = larger(seconds, all_reduce_s((outermost(setting.constants, setting.problem.cluster.group(name)),), size))
    return seconds
