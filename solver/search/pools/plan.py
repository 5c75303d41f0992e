"""Pools for a model on a cluster: every usable GPU a peer, equal runs of layers as stages, and what a step then takes.

Source: SWARM (Ryabinin et al. 2023, arXiv 2301.11913): each stage is served by any of its peers, micro-batches go to peers in proportion to their
speed, transfers run beside computation.
"""
from collections.abc import Sequence
from dataclasses import dataclass

from solver.cost.setting import setting
from solver.cost.stages import stages
from solver.domain.layout import Edge, Layout, StageLayout
from solver.domain.placement import layers_by_stage
from solver.domain.problem import Problem
from solver.domain.request import PoolRequest
from solver.errors import Fault, InputError
from solver.units import bytes_per_s_from_gb_s, seconds_from_us


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPeers:
    """Peers of one node group in a pool, and the share of the pool's micro-batches that each of them takes."""

    node_group: str
    peers: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One stage. `micro_batches_per_s` is what its peers compute together, forward and backward."""

    layers: tuple[int, int]
    peers: tuple[PoolPeers, ...]
    micro_batches_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """The answer of POST /v1/pools. No assignment of the peers has a slowest pool faster than `bound_micro_batches_per_s`, where that is proved."""

    outcome: str                                           # optimal | feasible
    pools: tuple[Pool, ...]
    bound_micro_batches_per_s: float
    step_time_s: float
    tokens_per_s: float
    forward_s: float
    backward_s: float
    sync_s: float
    assumptions: tuple[str, ...]


ASSUMED = ("peers hold what their stage needs: memory is not checked", "updates of weights are not counted",
           "bandwidths and latencies of the network are taken as stated: what is left for payload")


def pools(problem: Problem, asked: PoolRequest) -> PoolPlan:
    """Assign every GPU to a stage so that the slowest stage is as fast as can be, and time a step of all forwards, then all backwards."""
    from solver.search.formulation.pools import assign     # OR-Tools is slow to import

    shared, groups = setting(problem), problem.cluster.node_groups
    batch, size = shared.workload.global_batch_size, asked.micro_batch_size
    if asked.stages > problem.model.num_layers or asked.stages > problem.cluster.gpus or batch % size:
        raise InputError(Fault(pointer="/stages", message=f"{asked.stages} stages, micro-batches of {size}",
                               legal=f"at most {min(problem.model.num_layers, problem.cluster.gpus)} stages; a divisor of {batch}"))
    of = [_layout(problem, asked, g.name) for g in groups]
    times = [[(c.chunks[0][0], c.chunks[0][1]) for c in stages(problem, layout)] for layout in of]
    rates = [[1.0 / sum(times[g][j]) for g in range(len(groups))] for j in range(asked.stages)]
    found = assign(rates, [g.gpus for g in groups], asked.work_limit)
    if found is None:
        raise InputError(Fault(pointer="/work_limit", message="no assignment was found within the limit", legal="a higher limit"))
    made = [Pool(layers=of[0].stages[j].layers[0], micro_batches_per_s=sum(n * r for n, r in zip(row, rates[j], strict=True)),
                 peers=tuple(PoolPeers(node_group=groups[g].name, peers=n, share=rates[j][g] / sum(k * r for k, r in zip(row, rates[j], strict=True)))
                             for g, n in enumerate(row) if n)) for j, row in enumerate(found.counts)]
    networks = [_slowest_network(problem, made, j) for j in range(asked.stages)]
    edge = size * shared.workload.seq_len * problem.model.hidden_size * shared.activation_element
    forward, backward = (_phase_s([_server(found.counts[j], [times[g][j][k] for g in range(len(groups))]) for j in range(asked.stages)],
                                  _links(found.counts, networks, edge), batch // size) for k in (0, 1))
    sync = max(_sync_s(problem, made[j], sum(found.counts[j]), networks[j][0]) for j in range(asked.stages))
    step = forward + backward + sync
    return PoolPlan(outcome="optimal" if found.proved else "feasible", pools=tuple(made), bound_micro_batches_per_s=found.bound, step_time_s=step,
                    tokens_per_s=batch * shared.workload.seq_len / step, forward_s=forward, backward_s=backward, sync_s=sync, assumptions=ASSUMED)


def _layout(problem: Problem, asked: PoolRequest, group: str) -> Layout:
    """The stages as they would run on peers of one node group alone: for their times, whatever the group's size."""
    sizes = [problem.model.num_layers // asked.stages + (j < problem.model.num_layers % asked.stages) for j in range(asked.stages)]
    made = tuple(StageLayout(layers=spans, tp=1, cp=1, dp=1, ep=1, etp=1, recompute=asked.recompute, zero_stage=0, groups=(group,))
                 for spans in layers_by_stage(sizes, asked.stages))
    return Layout(stages=made, edges=tuple(Edge(same_node=False) for _ in made), replicas=1,
                  micro_batches=setting(problem).workload.global_batch_size // asked.micro_batch_size, micro_batch_size=asked.micro_batch_size,
                  schedule="gpipe", virtual_stages=1, sequence_parallel=False, ulysses=1, vocabulary_parallel_loss=True)


def _slowest_network(problem: Problem, made: Sequence[Pool], j: int) -> tuple[float, float]:
    """(bytes per second, latency in seconds) of the slowest network among the peers of a stage."""
    tiers = [problem.cluster.group(p.node_group).tiers[-1] for p in made[j].peers]
    return min(bytes_per_s_from_gb_s(t.bandwidth_gb_s) for t in tiers), max(seconds_from_us(t.latency_us) for t in tiers)


def _server(counts: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """(latency, seconds per micro-batch) of a pool: the slowest peer's time, and the reciprocal of all rates together."""
    used = [(n, s) for n, s in zip(counts, seconds, strict=True) if n]
    return max(s for _, s in used), 1.0 / sum(n / s for n, s in used)


def _links(counts: Sequence[Sequence[int]], networks: Sequence[tuple[float, float]], edge_bytes: float) -> list[tuple[float, float]]:
    """(latency, seconds per micro-batch) between neighbouring pools: as many transfers at once as the smaller pool has ports."""
    found = []
    for j in range(len(counts) - 1):
        one = edge_bytes / min(networks[j][0], networks[j + 1][0])
        found.append((one + max(networks[j][1], networks[j + 1][1]), one / min(sum(counts[j]), sum(counts[j + 1]))))
    return found


def _phase_s(servers: Sequence[tuple[float, float]], links: Sequence[tuple[float, float]], micro_batches: int) -> float:
    """One pass of all micro-batches: through everything once, then one more each time that the slowest server or link is done.

    Exact where each pool has one peer: a flow shop of equal jobs takes sum p + (m - 1) max p. Pools of several are taken as one server of their joint
    rate behind the slowest peer's latency.
    """
    every = [*servers, *links]
    return sum(latency for latency, _ in every) + (micro_batches - 1) * max(each for _, each in every)


def _sync_s(problem: Problem, pool: Pool, peers: int, bytes_per_s: float) -> float:
    """Ring all-reduce of a stage's gradients among its peers: 2 (n - 1) / n of them over each port."""
    from solver.cost.parameters import layer_parameters

    shared = setting(problem)
    weights = sum(layer_parameters(problem.model, c).total for c in shared.layers[pool.layers[0]:pool.layers[1] + 1])
    return 2.0 * (peers - 1) / peers * weights * shared.gradient_element / bytes_per_s
