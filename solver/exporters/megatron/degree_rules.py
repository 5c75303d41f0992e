"""Rules of Megatron-LM for plans whose stages all have the same degrees: divisibility, batches, experts, GPUs and hosts."""
import math
import re
from collections.abc import Callable, Iterator

from solver.domain.bounds import NAME_PATTERN
from solver.domain.estimate import Reason
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.domain.workload import TrainingWorkload
from solver.exporters.megatron.reasons import broken
from solver.exporters.ranks import rank_places

Rule = Callable[[Problem, Plan], Iterator[Reason]]


def _tensor_parallel(problem: Problem, plan: Plan) -> Iterator[Reason]:
    model, stage = problem.model, plan.pipelines[0].stages[0]
    if model.num_attention_heads % stage.tp:
        yield broken("heads", f"{model.num_attention_heads} attention heads over tp {stage.tp}",
                     f"tp {math.gcd(model.num_attention_heads, stage.tp)}")
    if model.mla is None and model.kv_heads % stage.tp and stage.tp % model.kv_heads:
        yield broken("kv_heads", f"{model.kv_heads} KV heads are neither a multiple nor a divisor of tp {stage.tp}",
                     f"tp {math.gcd(model.kv_heads, stage.tp)}")
    if model.moe is not None and stage.tp > 1 and not plan.sequence_parallel:
        yield broken("moe_sequence_parallel", "experts with tp above 1 need sequence parallelism", '"sequence_parallel": true')


def _sequence(problem: Problem, plan: Plan) -> Iterator[Reason]:
    work, stage = problem.workload, plan.pipelines[0].stages[0]
    if not isinstance(work, TrainingWorkload):
        return
    parts = 1 if stage.cp == 1 else 2 * stage.cp
    if plan.sequence_parallel and stage.tp > 1:
        parts = stage.cp * math.lcm(2, stage.tp) if stage.cp > 1 else stage.tp
    if work.seq_len % parts:
        yield broken("sequence", f"{work.seq_len} tokens are no multiple of {parts} (cp {stage.cp}, tp {stage.tp})",
                     f"seq_len {max(work.seq_len // parts, 1) * parts}")
    ulysses = plan.ulysses or 1
    if stage.cp % ulysses:
        yield broken("ulysses", f"Ulysses degree {ulysses} does not divide cp {stage.cp}", f'"ulysses": {math.gcd(stage.cp, ulysses)}')
    elif ulysses > 1 and (problem.model.num_attention_heads // stage.tp) % ulysses:
        yield broken("ulysses", f"{problem.model.num_attention_heads // stage.tp} heads per tensor rank over Ulysses degree {ulysses}",
                     '"ulysses": null')


def _batch(problem: Problem, plan: Plan) -> Iterator[Reason]:
    width = plan.pipelines[0].stages[0].dp
    if plan.micro_batch_size % width:
        yield broken("micro_batch", f"a micro-batch of {plan.micro_batch_size} does not split over {width} data-parallel groups",
                     f"micro_batch_size {math.ceil(plan.micro_batch_size / width) * width}")
    work = problem.workload
    total = plan.micro_batch_size * sum(p.micro_batches for p in plan.pipelines)
    if isinstance(work, TrainingWorkload) and total != work.global_batch_size:
        yield broken("global_batch", f"the pipelines take {total} sequences of a global batch of {work.global_batch_size}",
                     f"micro-batches that sum to {work.global_batch_size} sequences")


def _experts(problem: Problem, plan: Plan) -> Iterator[Reason]:
    stage, pipelines = plan.pipelines[0].stages[0], len(plan.pipelines)
    ranks = stage.tp * stage.cp * stage.dp * pipelines
    if problem.model.moe is None:
        if stage.ep > 1:
            yield broken("experts", f"ep {stage.ep} without experts", "ep 1")
        return
    if problem.model.moe.num_experts % stage.ep:
        yield broken("experts", f"{problem.model.moe.num_experts} experts over ep {stage.ep}",
                     f"ep {math.gcd(problem.model.moe.num_experts, stage.ep)}")
    if ranks % (stage.ep * stage.etp):
        yield broken("experts", f"ep {stage.ep} * etp {stage.etp} does not divide the {ranks} ranks of a stage",
                     f"ep {math.gcd(ranks // stage.etp or 1, stage.ep)}")
    elif plan.shard_group and (ranks // (stage.ep * stage.etp)) % instances(plan):
        yield broken("shard_group", f"{ranks // (stage.ep * stage.etp)} expert replicas over {instances(plan)} optimizer instances",
                     '"shard_group": null')


def _shard_group(problem: Problem, plan: Plan) -> Iterator[Reason]:
    stage = plan.pipelines[0].stages[0]
    width = len(plan.pipelines) * stage.dp * stage.cp
    if plan.shard_group and (width % plan.shard_group or plan.shard_group > width):
        yield broken("shard_group", f"a shard group of {plan.shard_group} does not divide {width} data-parallel ranks",
                     f'"shard_group": {math.gcd(width, plan.shard_group)}')


def _devices(problem: Problem, plan: Plan) -> Iterator[Reason]:
    for pipeline in plan.pipelines:
        for index, stage in enumerate(pipeline.stages):
            if stage.gpus != stage.tp * stage.cp * stage.dp:
                yield broken("devices", f"{stage.gpus} GPUs for tp {stage.tp} * cp {stage.cp} * dp {stage.dp}",
                             f"{stage.tp * stage.cp * stage.dp} GPUs", stage=index)
                return
    places = rank_places(problem, plan)
    if len({(p.node_group, p.node, p.gpu) for p in places}) < len(places):
        yield broken("devices", "a GPU stands in the plan twice", "each GPU once")
        return
    owner: dict[str, tuple[str, int]] = {}
    for place in places:
        if not re.fullmatch(NAME_PATTERN, place.host):
            yield broken("host_names", f"{place.host[:80]!r} is no host name", f"a match of {NAME_PATTERN}")
            return
        if owner.setdefault(place.host, (place.node_group, place.node)) != (place.node_group, place.node):
            yield broken("host_names", f"two nodes have the host name {place.host!r}", "a name of its own for every node")
            return


def instances(plan: Plan) -> int:
    """Instances of the distributed optimizer: data-parallel ranks over the shard group."""
    width = len(plan.pipelines) * plan.pipelines[0].stages[0].dp * plan.pipelines[0].stages[0].cp
    return max(width // (plan.shard_group or width), 1)


DEGREE_RULES: tuple[Rule, ...] = (_tensor_parallel, _sequence, _batch, _experts, _shard_group, _devices)
