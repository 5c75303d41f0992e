"""Why: runners-up against the best, what excludes every plan, and the smallest change that would let one in."""
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from solver.axes.tensor import legal_degrees, model_violations
from solver.domain.estimate import Reason
from solver.domain.options import Constraints
from solver.domain.problem import Problem
from solver.search.floor import memory_floor
from solver.search.incumbent import Incumbents, Priced, fastest_first
from solver.search.result import Alternative, Relaxation
from solver.search.space import Space
from solver.search.tables import TableFactory
from solver.units import GIB

WORDS = {"compute_s": "compute", "tensor_comm_s": "tensor-parallel traffic", "context_comm_s": "context-parallel traffic",
         "expert_comm_s": "expert traffic", "pipeline_comm_s": "pipeline transfers", "data_comm_s": "gradient traffic",
         "bubble_s": "pipeline bubble", "optimizer_s": "optimizer step", "recompute_s": "recompute"}
GROWTHS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
AnyPlan = Callable[[Problem, Constraints], float | None]


def alternatives(incumbents: Incumbents, count: int) -> tuple[Alternative, ...]:
    """The best runners-up that differ from the best, and from each other, in more than where a layer lies.

    Where the best leaves less memory free than the margin, the fastest plan found that keeps it comes first.
    """
    best = incumbents.best
    if best is None:
        return ()
    found: list[Alternative] = []
    seen = {_family(best)}
    ranked = sorted(incumbents.others.values(), key=incumbents.rank)
    if best.predicted.risk != "safe":
        safe = [p for p in ranked if p.predicted.risk == "safe"][:1]
        ranked = safe + ranked
        found = [Alternative(plan=p.plan, predicted=p.predicted, why_not_best=f"{_loss(incumbents, p)}; keeps the memory margin")
                 for p in safe][:count]
        seen |= {_family(p) for p in safe}
    for other in ranked:
        if len(found) == count:
            break
        if _family(other) not in seen:
            seen.add(_family(other))
            found.append(Alternative(plan=other.plan, predicted=other.predicted, why_not_best=_loss(incumbents, other)))
    return tuple(found)


def _family(p: Priced) -> tuple[object, ...]:
    return (p.layout.schedule, p.layout.virtual_stages, p.layout.replicas, p.layout.micro_batch_size,
            tuple((s.tp, s.dp, s.cp, s.ep, s.recompute, s.zero_stage, s.groups) for s in p.layout.stages))


def _loss(incumbents: Incumbents, other: Priced) -> str:
    """What a runner-up loses to the best: time, or what the objective makes least."""
    best = incumbents.best
    assert best is not None                                 # there are no runners-up without a best
    if incumbents.rank is fastest_first:
        return why_not(best, other)
    least, worth = incumbents.rank(best)[0], incumbents.rank(other)[0]
    faster = 1 - other.step_s / best.step_s
    pace = f"{abs(faster):.2%} {'faster' if faster > 0 else 'slower'}" if abs(faster) > 1e-12 else "as fast"
    return f"takes {worth / least - 1 if least else 0.0:.2%} more per step, on {other.predicted.gpus} GPUs, {pace}"


def why_not(best: Priced, other: Priced) -> str:
    """What the other plan loses to the best, by the part of the step time that grew most.

    Both times are known here: only plans with a time are remembered.
    """
    slower = other.step_s / best.step_s - 1
    if slower <= 1e-12 or best.predicted.time is None or other.predicted.time is None:
        return "as fast as the best"
    growth = {name: getattr(other.predicted.time, name) - getattr(best.predicted.time, name) for name in WORDS}
    worst = max(growth, key=lambda name: growth[name])
    return f"{slower:.2%} slower: {growth[worst]:+.3f} s of {WORDS[worst]}"


def reasons_for_none(problem: Problem, constraints: Constraints, factory: TableFactory) -> tuple[Reason, ...]:
    """Which family of rules leaves no plan: no candidate at all, or memory."""
    space = Space(problem, constraints)
    if not space.groups:
        return (Reason(code="cluster.no_gpus", message="no usable GPU in the node groups allowed", fix="node groups with usable GPUs"),)
    floor = memory_floor(space, factory)
    if floor.excludes_all and floor.have_bytes <= 0:
        return (Reason(code="memory.over", message="the context and libraries of a process fill the memory of every GPU allowed", fix="larger GPUs"),)
    if floor.excludes_all:
        times = floor.need_bytes / floor.have_bytes
        return (Reason(code="memory.over", fix=f"at least {times:.1f} times the memory, bf16 gradients, or an optimizer with less state",
                       message=f"weights, gradients and optimizer state alone need {floor.need_bytes / GIB:.0f} GiB, however they are sharded; "
                               f"the GPUs allowed hold {floor.have_bytes / GIB:.0f} GiB for allocations"),)
    degrees = _excluded_degrees(problem, constraints) if not space.tensor_degrees else ()
    if degrees:
        return degrees
    kinds = any(space.kinds(space.base(c, b, d, z)) for c in space.contexts() for b in space.micro_batch_sizes()
                for d in space.replica_counts(c.cp, b) for z in space.zero_stages())
    if not kinds:
        excluded = tuple(Reason(code=r.code, message=f"{r.count} candidates excluded, such as {r.example}", fix="allow more values in `constraints`")
                         for r in space.rejections.result() if r.code.startswith("constraints."))
        unmeasured = next((r for r in space.rejections.result() if r.code == "profile.missing"), None)
        if unmeasured is not None:
            message = f"the profiles cover no stage: {unmeasured.count} are excluded, such as {unmeasured.example}"
            excluded = (Reason(code=unmeasured.code, message=message, fix="that measurement, or profiles.extrapolate true"), *excluded)
        return excluded or (Reason(code="constraints.empty", message="the constraints leave no candidate", fix="fewer constraints"),)
    if constraints.max_step_time_s is not None:
        return (Reason(code="constraints.max_step_time_s", message=f"no plan that fits takes at most {constraints.max_step_time_s:g} s a step",
                       fix="more time per step, or more GPUs"),)
    states = f"{floor.need_bytes / GIB:.0f} of {floor.have_bytes / GIB:.0f} GiB"
    return (Reason(code="memory.layout",
                   message=f"the states would fit ({states}), but no split over stages holds them and the activations of a micro-batch",
                   fix="a shorter sequence, a smaller micro-batch, more recompute, more GPUs, or fewer constraints"),)


def _excluded_degrees(problem: Problem, constraints: Constraints) -> tuple[Reason, ...]:
    """Why none of the tensor degrees asked for is legal."""
    found: list[Reason] = []
    legal = ", ".join(map(str, legal_degrees(problem)))
    for tp in constraints.tp or ():
        broken = model_violations(problem.model, tp, None)
        found += broken or [Reason(code="tensor.node", message=f"tp {tp} fits the nodes of no node group allowed", fix=None)]
    return tuple(replace(reason, fix=f"tp of {legal}") for reason in found)


def smallest_relaxation(problem: Problem, constraints: Constraints, any_plan: AnyPlan) -> Relaxation | None:
    """The first change that makes a plan possible, in order of what it costs the user.

    Lift one constraint, then add nodes (as few as suffice), then memory.
    """
    for field, words in (("max_step_time_s", "any step time"), ("memory_margin", "no memory margin"), ("recompute", "any recompute mode"),
                         ("micro_batch_size", "any micro-batch size"), ("tp", "any tp"), ("max_pp", "any number of stages"),
                         ("zero_stage", "any ZeRO stage"), ("cp", "any cp"), ("dp", "any dp"), ("ep", "any ep"),
                         ("schedules", "any schedule"), ("virtual_stages", "any number of virtual stages"),
                         ("uniform", "stages that differ"), ("tier", "stages that differ more"),
                         ("launcher", "any launcher"), ("node_groups", "all node groups"),
                         ("max_price_per_hour", "no price limit")):
        if getattr(constraints, field) in (None, False):
            continue
        lifted: dict[str, Any] = {field: False if field == "uniform" else None}
        time_s = any_plan(problem, replace(constraints, **lifted))
        if time_s is not None:
            return Relaxation(change=f"constraints.{field}: {words}", step_time_s=time_s)
    if problem.profiles is not None and problem.profiles.layers and not problem.profiles.extrapolate:
        time_s = any_plan(replace(problem, profiles=replace(problem.profiles, extrapolate=True)), constraints)
        if time_s is not None:
            return Relaxation(change="profiles.extrapolate: true, beyond what was measured", step_time_s=time_s)
    return _more_nodes(problem, constraints, any_plan) or _more_memory(problem, constraints, any_plan)


def _more_nodes(problem: Problem, constraints: Constraints, any_plan: AnyPlan) -> Relaxation | None:
    groups = problem.cluster.node_groups
    target = max(range(len(groups)), key=lambda i: groups[i].device.capacity_gib)

    def with_nodes(nodes: int) -> Problem:
        changed = replace(groups[target], nodes=nodes, hostnames=None)
        return replace(problem, cluster=replace(problem.cluster, node_groups=(*groups[:target], changed, *groups[target + 1:])))

    have = groups[target].nodes
    few = have
    for growth in GROWTHS:
        many = have * growth
        time_s = any_plan(with_nodes(many), constraints)
        if time_s is None:
            few = many
            continue
        while many - few > max(1, few // 50):
            middle = (few + many) // 2
            found = any_plan(with_nodes(middle), constraints)
            few, many, time_s = (few, middle, found) if found is not None else (middle, many, time_s)
        return Relaxation(change=f"{many} nodes in {groups[target].name} instead of {have}", step_time_s=time_s)
    return None


def _more_memory(problem: Problem, constraints: Constraints, any_plan: AnyPlan) -> Relaxation | None:
    for growth in GROWTHS:
        groups = tuple(replace(g, device=replace(g.device, memory_gib=g.device.memory_gib * growth,
                                                 reported_memory_gib=g.device.reported_memory_gib * growth))
                       for g in problem.cluster.node_groups)
        time_s = any_plan(replace(problem, cluster=replace(problem.cluster, node_groups=groups)), constraints)
        if time_s is not None:
            return Relaxation(change=f"{growth} times the memory on every GPU", step_time_s=time_s)
    return None
