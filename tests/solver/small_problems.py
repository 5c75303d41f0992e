"""Problems small enough to try every plan: random models, clusters and batches, and the enumeration of all that an estimate could call feasible."""
import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from solver.catalog.loader import device
from solver.domain.cluster import Cluster, FabricTier, GroupLink, NodeGroup, UnavailableGpu
from solver.domain.degrees import RECOMPUTE_MODES, Recompute, Strategy
from solver.domain.layout import Edge, Layout, StageLayout
from solver.domain.model import Architecture, MoE
from solver.domain.options import Constraints
from solver.domain.placement import layers_by_stage
from solver.domain.problem import Problem
from solver.domain.operators import AttentionProfile, GemmProfile
from solver.domain.profiles import CollectiveOp, CollectiveProfile, LayerProfile, Profiles
from solver.domain.workload import TrainingWorkload

COLLECTIVES: tuple[CollectiveOp, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
DEVICES = ("A100-SXM4-80GB", "H100-SXM5-80GB", "V100-SXM2-32GB", "T4", "L4")


def small_problem(seed: int, most_gpus: int = 6) -> Problem:
    """A problem by number: few layers and GPUs, unlike devices, memory that often binds."""
    rng = np.random.default_rng(seed)
    groups, left = [], most_gpus
    for i in range(int(rng.integers(1, 4))):
        per_node = int(rng.choice([n for n in (1, 1, 2, 2, 3, 4) if n <= left]))
        nodes = int(rng.integers(1, 3)) if 2 * per_node <= left else 1
        left -= nodes * per_node
        groups.append(_group(rng, f"g{i}", nodes, per_node))
        if left == 0:
            break
    links = tuple(GroupLink(between=(a.name, b.name), bandwidth_gb_s=float(rng.choice([0.1, 2.0, 12.0])), latency_us=20.0)
                  for a, b in itertools.combinations(groups, 2) if rng.random() < 0.3)
    workload = TrainingWorkload(seq_len=int(rng.choice([128, 192, 510, 1024, 2048])), global_batch_size=int(rng.choice([1, 2, 3, 4, 6, 8])),
                                attention_kernel=str(rng.choice(["auto", "auto", "unfused"])), gradient_precision=str(rng.choice(["fp32", "bf16"])))
    return Problem(model=_model(rng), cluster=Cluster(name="c", node_groups=tuple(groups), links=links), workload=workload)


def _group(rng: np.random.Generator, name: str, nodes: int, per_node: int) -> NodeGroup:
    of = device(str(rng.choice(DEVICES)))[0]
    memory = float(rng.choice([2.2, 2.6, 3.0, 3.6, 4.5, 6.0, 16.0]))
    of = replace(of, memory_gib=memory, reported_memory_gib=memory, reserved_memory_gib=0.0)
    tiers = [FabricTier(size=per_node, bandwidth_gb_s=float(rng.choice([8.0, 50.0, 300.0])), latency_us=3.0, name="link")] if per_node > 1 else []
    tiers.append(FabricTier(size=nodes * per_node, bandwidth_gb_s=float(rng.choice([0.3, 3.0, 25.0])), latency_us=8.0, name="network"))
    gone = (UnavailableGpu(node=int(rng.integers(nodes)), gpu=int(rng.integers(per_node))),) if nodes * per_node > 1 and rng.random() < 0.2 else ()
    return NodeGroup(name=name, nodes=nodes, gpus_per_node=per_node, device=of, tiers=tuple(tiers), unavailable_gpus=gone,
                     speed_factor=float(rng.choice([1.0, 1.0, 0.6])), price_per_gpu_hour=float(rng.choice([1.0, 2.5])))


def _model(rng: np.random.Generator) -> Architecture:
    heads, layers = int(rng.choice([2, 3, 4])), int(rng.integers(1, 5))
    moe = None
    if rng.random() < 0.25:
        moe = MoE(num_experts=int(rng.choice([2, 4])), top_k=1, expert_ffn_hidden_size=1024, first_dense_layers=int(rng.integers(0, layers)),
                  num_shared_experts=int(rng.integers(0, 2)))
    encoder = moe is None and layers > 1 and rng.random() < 0.25
    return Architecture(kind="encoder_decoder" if encoder else "decoder", num_layers=layers, hidden_size=heads * 256,
                        ffn_hidden_size=int(rng.choice([1536, 3072])) * (1 if heads % 3 else 2),
                        num_attention_heads=heads, num_kv_heads=int(rng.choice([1, heads])), vocab_size=int(rng.choice([2_000, 32_000, 100_000])),
                        tied_embeddings=bool(rng.random() < 0.3), moe=moe, gated_ffn=bool(rng.random() < 0.7))


def some_constraints(seed: int) -> Constraints:
    """What a user may allow, at random; often everything."""
    rng = np.random.default_rng(seed + 10**6)

    def some(values: tuple, share: float = 0.4) -> tuple | None:
        return None if rng.random() > share else tuple(v for v in values if rng.random() < 0.5) or (values[int(rng.integers(len(values)))],)

    return Constraints(tp=some((1, 2, 3, 4), 0.2), cp=some((1, 2), 0.5), recompute=some(RECOMPUTE_MODES), zero_stage=some((0, 1, 2, 3)),
                       micro_batch_size=some((1, 2, 3, 4), 0.2), dp=some((1, 2, 3, 4), 0.2), schedules=some(("gpipe", "1f1b", "interleaved"), 0.3),
                       max_pp=int(rng.integers(1, 4)) if rng.random() < 0.2 else None, uniform=bool(rng.random() < 0.15),
                       memory_margin=0.1 if rng.random() < 0.2 else None, max_price_per_hour=6.0 if rng.random() < 0.1 else None)


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as `parts` whole numbers of at least one."""
    for cuts in itertools.combinations(range(1, total), parts - 1):
        yield tuple(b - a for a, b in zip((0, *cuts), (*cuts, total), strict=True))


def _in(value: object, wanted: tuple | None) -> bool:
    return wanted is None or value in wanted


def _outer(problem: Problem, allowed: Constraints) -> Iterator[dict]:
    """Global choices, legal or not beyond divisibility of the batch."""
    model, batch = problem.model, problem.workload.global_batch_size
    experts = divisors(model.moe.num_experts) if model.moe else [1]
    for b, cp, ep, etp, zero in itertools.product(divisors(batch), (1, 2, 3, 4), experts, (1, 2, 4) if model.moe else (1,), range(4)):
        if not (_in(b, allowed.micro_batch_size) and _in(cp, allowed.cp) and _in(ep, allowed.ep) and _in(zero, allowed.zero_stage)):
            continue
        for ulysses in divisors(cp):
            yield {"micro_batch_size": b, "cp": cp, "ep": ep, "etp": etp, "zero_stage": zero, "ulysses": ulysses}


def uniform_strategies(problem: Problem, allowed: Constraints) -> Iterator[Strategy]:
    """Every uniform strategy in shorthand."""
    model, batch, gpus = problem.model, problem.workload.global_batch_size, problem.cluster.gpus
    for outer in _outer(problem, allowed):
        for tp, pp, dp in itertools.product(divisors(model.num_attention_heads), range(1, model.num_layers + 1),
                                            divisors(batch // outer["micro_batch_size"])):
            m = batch // outer["micro_batch_size"] // dp
            if tp * pp * dp * outer["cp"] > gpus or not (_in(tp, allowed.tp) and _in(dp, allowed.dp)) or pp > (allowed.max_pp or pp):
                continue
            for mode, on, parallel_loss in itertools.product(allowed.recompute or RECOMPUTE_MODES, (True, False), (True, False)):
                if tp == 1 and not (on and parallel_loss):
                    continue
                for schedule, v in [("gpipe", 1), ("1f1b", 1), *(("interleaved", v) for v in range(2, model.num_layers + 1))]:
                    if not _in(schedule, allowed.schedules) or (v > 1 and (pp == 1 or m % pp or model.num_layers % v)):
                        continue
                    for sizes in compositions(model.num_layers // v, pp):
                        yield Strategy(tp=tp, pp=pp, dp=dp, recompute=mode, schedule=schedule, virtual_stages=v, sequence_parallel=on,
                                       vocabulary_parallel_loss=parallel_loss, layers_per_stage=tuple(n * v for n in sizes), **outer)


def unlike_layouts(problem: Problem, allowed: Constraints) -> Iterator[Layout]:
    """Every layout of stages that may differ in node groups, tensor degree, width and recompute, to be placed."""
    model, batch = problem.model, problem.workload.global_batch_size
    names = [g.name for g in problem.cluster.node_groups]
    gpus = {g.name: g.gpus for g in problem.cluster.node_groups}
    sets = [s for size in range(1, len(names) + 1) for s in itertools.combinations(names, size)]
    for outer in _outer(problem, allowed):
        b = outer["micro_batch_size"]
        for dp in divisors(batch // b):
            if not _in(dp, allowed.dp):
                continue
            kinds = [(s, tp, width, mode) for s in sets for tp in divisors(model.num_attention_heads) for width in divisors(b)
                     for mode in allowed.recompute or RECOMPUTE_MODES
                     if _in(tp, allowed.tp) and tp * width * dp * outer["cp"] <= sum(gpus[g] for g in s)]
            for stages in range(1, min(model.num_layers, allowed.max_pp or model.num_layers) + 1):
                for row in itertools.product(kinds, repeat=stages):
                    if sum(tp * width * dp * outer["cp"] for _, tp, width, _ in row) <= problem.cluster.gpus:
                        yield from _layouts(model.num_layers, batch // b // dp, dp, row, outer, allowed)


Row = tuple[tuple[tuple[str, ...], int, int, Recompute], ...]


def _layouts(layers: int, m: int, dp: int, row: Row, outer: dict, allowed: Constraints) -> Iterator[Layout]:
    shape = {name: outer[name] for name in ("cp", "ep", "etp", "zero_stage")}
    for schedule in ("gpipe", "1f1b"):
        if not _in(schedule, allowed.schedules):
            continue
        for sizes in compositions(layers, len(row)):
            stages = tuple(StageLayout(layers=spans, tp=tp, dp=width, recompute=mode, groups=groups, **shape)
                           for spans, (groups, tp, width, mode) in zip(layers_by_stage(sizes, len(row)), row, strict=True))
            for on in (True, False) if any(tp > 1 for _, tp, _, _ in row) else (True,):
                yield Layout(stages=stages, edges=tuple(Edge(same_node=False) for _ in stages), replicas=dp, micro_batches=m,
                             micro_batch_size=outer["micro_batch_size"], schedule=schedule, virtual_stages=1, sequence_parallel=on,
                             ulysses=outer["ulysses"], vocabulary_parallel_loss=True)


def with_profiles(problem: Problem, seed: int) -> Problem:
    """The problem with measurements of its layers as a user may have them.

    Noise of tens of percent (larger micro-batches slower per sequence too), gaps in tensor degrees and micro-batches, layers and ends measured apart
    or not at all.
    """
    rng = np.random.default_rng(seed + 2 * 10**6)
    model, rows = problem.model, []
    keys: list[str | int] = ["block", *(i for i in range(model.num_layers) if rng.random() < 0.2),
                             *(k for k in ("embedding", "head") if rng.random() < 0.3)]
    for gpu in sorted({g.device.name for g in problem.cluster.node_groups}):
        if rng.random() < 0.05:
            continue
        base_s = float(rng.uniform(0.3, 3.0)) * 1e-3
        for tp in (t for t in (1, 2, 3, 4) if rng.random() < 0.9):
            sizes = [b for b in (1, 2, 3, 4, 6, 8) if rng.random() < 0.7] or [1]
            rows += [_profile(rng, gpu, tp, b, key, base_s / tp**0.8) for key in keys for b in sizes if key == "block" or rng.random() < 0.97]
    profiles = Profiles(layers=tuple(rows), extrapolate=bool(rng.random() < 0.3))
    return replace(problem, profiles=profiles if rows else None)


def with_collectives(problem: Problem, seed: int) -> Problem:
    """The problem with measurements of some collectives, noise of a factor of two included: larger messages faster per byte, or slower."""
    rng, rows = np.random.default_rng(seed + 3 * 10**6), []
    groups = problem.cluster.node_groups
    pairs = [(a.name, b.name) for a, b in itertools.combinations(groups, 2)]
    for names in [(g.name,) for g in groups] + pairs:
        gpus = sum(g.gpus for g in groups if g.name in names)
        for op, ranks in itertools.product(COLLECTIVES, range(2, gpus + 1)):
            if rng.random() < 0.6 and (op != "send_recv" or ranks == 2):
                sizes = sorted({float(rng.choice([1e4, 1e5, 1e6, 1e7, 1e8, 1e9])) for _ in range(int(rng.integers(1, 4)))})
                rows += [CollectiveProfile(op=op, groups=names, ranks=ranks, bytes=size, seconds=(2e-5 + size / 2e10) * float(rng.uniform(0.5, 2.0)))
                         for size in sizes]
    before = problem.profiles or Profiles()
    return replace(problem, profiles=replace(before, collectives=tuple(rows)))


def with_operators(problem: Problem, seed: int) -> Problem:
    """The problem with matrix products and attention measured on some of its GPUs: a grid of shapes with noise of a factor of two and holes."""
    rng = np.random.default_rng(seed + 4 * 10**6)
    gemms: list[GemmProfile] = []
    cores: list[AttentionProfile] = []
    for gpu in sorted({g.device.name for g in problem.cluster.node_groups}):
        if rng.random() < 0.8:
            shapes = [s for s in itertools.product((32, 256, 2048, 16_384), repeat=3) if rng.random() < 0.95]
            gemms += [GemmProfile(gpu=gpu, precision="bf16", m=m, n=n, k=k, seconds=(1e-5 + m * n * k / 2e13) * float(rng.uniform(0.5, 2.0)))
                      for m, n, k in shapes]
            lengths = (64, problem.workload.seq_len, 4096)
            cores += [AttentionProfile(gpu=gpu, sequences=b, seq_len=s, heads=1, head_dim=problem.model.head_width,
                                       forward_s=(1e-5 + b * s * s / 4e10) * float(rng.uniform(0.5, 2.0)),
                                       backward_s=(1e-5 + b * s * s / 2e10) * float(rng.uniform(0.5, 2.0))) for b in (1, 4, 32) for s in lengths]
    before = problem.profiles or Profiles()
    return replace(problem, profiles=replace(before, gemms=tuple(gemms), attention=tuple(cores)))


def _profile(rng: np.random.Generator, gpu: str, tp: int, b: int, key: str | int, base_s: float) -> LayerProfile:
    def noisy(value: float, share: float = 1.0) -> float | None:
        return value * float(rng.uniform(0.7, 1.4)) if rng.random() < share else None

    forward, backward = noisy(base_s * (0.4 + b)) or 0.0, noisy(2 * base_s * (0.4 + b)) or 0.0
    return LayerProfile(gpu=gpu, tp=tp, micro_batch_size=b, layer=key, forward_s=forward, backward_s=backward, update_s=noisy(1e-4 / tp, 0.3),
                        weight_grad_s=noisy(backward / 3, 0.3), parameter_bytes=noisy(1e7 / tp, 0.3), activation_bytes=noisy(3e7 * b / tp, 0.4),
                        output_bytes=noisy(2e6 * b, 0.3))
