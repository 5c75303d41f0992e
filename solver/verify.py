"""The judge: everything that a plan must obey, re-derived from the plan alone. It imports nothing of the search.

An answer with violations is a bug of ours: it is never stored and never exported.
"""
from collections import Counter
from collections.abc import Iterator

from solver.cost.unlike import price_any
from solver.domain.estimate import Estimate, Reason
from solver.domain.options import Constraints
from solver.domain.plan import Plan, Stage
from solver.domain.problem import Problem
from solver.domain.reading import read


def judge(problem: Problem, plan: Plan, predicted: Estimate, constraints: Constraints = Constraints()) -> tuple[Reason, ...]:
    """Violations of a plan and of what is claimed for it: coverage, GPUs, batch, rules, memory, constraints, and the price to the last digit."""
    found = [*_coverage(problem, plan), *_gpus(problem, plan), *_batch(problem, plan), *_constraints(plan, predicted, constraints)]
    layout, reasons = read(problem, plan)
    found += reasons
    if layout is None:
        return tuple(found)
    priced = price_any(problem, layout)
    found += priced.reasons
    if priced != predicted:
        found.append(Reason(code="judge.price",
                            message=f"the plan is priced at {priced.step_time_s!r} s, the answer claims {predicted.step_time_s!r} s",
                            fix="the price of the plan, digit for digit"))
    if not priced.feasible:
        found.append(Reason(code="judge.infeasible", message=f"the plan is not feasible (risk {priced.risk})",
                            fix="a plan that fits and breaks no rule"))
    return tuple(found)


def _coverage(problem: Problem, plan: Plan) -> Iterator[Reason]:
    """Every layer exactly once per pipeline, in the order in which a micro-batch passes the virtual stages."""
    for i, pipeline in enumerate(plan.pipelines):
        chunks = [stage.layers[c] for c in range(len(pipeline.stages[0].layers)) for stage in pipeline.stages if c < len(stage.layers)]
        passed = [layer for first, last in chunks for layer in range(first, last + 1)]
        if passed != list(range(problem.model.num_layers)):
            yield Reason(code="judge.layers",
                         message=f"pipeline {i} passes {len(passed)} layers, not 0 to {problem.model.num_layers - 1} once each in order",
                         fix="each layer once")
            return


def _gpus(problem: Problem, plan: Plan) -> Iterator[Reason]:
    """No GPU twice, none that is not there, and as many as the degrees need."""
    used = Counter((d.node_group, d.node, g) for p in plan.pipelines for s in p.stages for d in s.devices for g in d.gpus)
    if used and max(used.values()) > 1:
        yield Reason(code="judge.gpu_twice", message=f"{used.most_common(1)[0][0]} is used twice", fix="each GPU once")
    there = {g.name: g for g in problem.cluster.node_groups}
    for name, node, gpu in used:
        group = there.get(name)
        if group is None or node >= group.nodes or gpu >= group.gpus_per_node or any(u.node == node and u.gpu == gpu for u in group.unavailable_gpus):
            yield Reason(code="judge.no_such_gpu", message=f"{name} node {node} GPU {gpu} cannot be used", fix="GPUs of the cluster")
            return
    for i, stage in _stages(plan):
        if stage.gpus != stage.tp * stage.cp * stage.dp:
            yield Reason(code="judge.gpu_count", stage=i, message=f"{stage.gpus} GPUs for tp {stage.tp} x cp {stage.cp} x dp {stage.dp}",
                         fix="their product")
            return


def _stages(plan: Plan) -> Iterator[tuple[int, Stage]]:
    for pipeline in plan.pipelines:
        yield from enumerate(pipeline.stages)


def _batch(problem: Problem, plan: Plan) -> Iterator[Reason]:
    sequences = sum(p.micro_batches for p in plan.pipelines) * plan.micro_batch_size
    wanted = getattr(problem.workload, "global_batch_size", sequences)
    if sequences != wanted:
        yield Reason(code="judge.batch", message=f"the pipelines take {sequences} sequences of {wanted}", fix=f"{wanted} in all")


def _unevenness(plan: Plan, constraints: Constraints) -> Iterator[Reason]:
    """The tier of the request against the stages."""
    stages = [stage for _, stage in _stages(plan)]
    tier = constraints.allowed_tier
    if tier != "uneven_degrees" and len({(s.tp, s.dp, s.cp, s.ep, s.recompute) for s in stages}) > 1:
        yield Reason(code="constraints.uniform", message="stages differ in their degrees", fix="the same degrees in every stage")
    if tier == "even" and len({sum(last - first + 1 for first, last in s.layers) for s in stages}) > 1:
        yield Reason(code="constraints.tier", message="stages differ in their number of layers", fix="as many layers in every stage")


def _launcher(plan: Plan, constraints: Constraints) -> Iterator[Reason]:
    """The row of the launcher asked for against the plan."""
    rules, stages = constraints.rules, [stage for _, stage in _stages(plan)]
    piped = len(plan.pipelines[0].stages) > 1
    zero = rules.zero_stages_of_pipelines if piped and rules.zero_stages_of_pipelines is not None else rules.zero_stages
    broken = [("ZeRO", max(s.zero_stage for s in stages), any(s.zero_stage not in zero for s in stages)),
              ("pipeline stages", len(plan.pipelines[0].stages), piped and not rules.pipelines),
              ("virtual stages", plan.virtual_stages, plan.virtual_stages > 1 and not rules.virtual_stages),
              ("cp", stages[0].cp, rules.cp is not None and any(s.cp not in rules.cp for s in stages)),
              ("ulysses", plan.ulysses, rules.ulysses is not None and (plan.ulysses or 1) not in rules.ulysses),
              ("ep", stages[0].ep, rules.ep is not None and any(s.ep not in rules.ep for s in stages)),
              ("node groups in one stage", 2, not rules.straddling and any(len({d.node_group for d in s.devices}) > 1 for s in stages))]
    for what, value, wrong in broken:
        if wrong:
            yield Reason(code="constraints.launcher", message=f"{rules.title} does not run {what} {value}", fix="a plan asked for with that launcher")


def _constraints(plan: Plan, predicted: Estimate, constraints: Constraints) -> Iterator[Reason]:
    """Each constraint of the request against the plan."""
    stages = [stage for _, stage in _stages(plan)]
    allowed = (("tp", {s.tp for s in stages}), ("cp", {s.cp for s in stages}), ("ep", {s.ep for s in stages}),
               ("recompute", {s.recompute for s in stages}), ("zero_stage", {s.zero_stage for s in stages}), ("schedules", {plan.schedule}),
               ("virtual_stages", {plan.virtual_stages}), ("micro_batch_size", {plan.micro_batch_size}), ("dp", {len(plan.pipelines)}),
               ("node_groups", {d.node_group for s in stages for d in s.devices}))
    if constraints.candidates is None:
        for name, values in allowed:
            wanted = getattr(constraints, name)
            if wanted is not None and not values <= set(wanted):
                yield Reason(code=f"constraints.{name}", message=f"the plan has {name} {sorted(values)}", fix=f"values of {sorted(wanted)}")
    deepest = max(len(p.stages) for p in plan.pipelines)
    if constraints.max_pp is not None and deepest > constraints.max_pp:
        yield Reason(code="constraints.max_pp", message=f"{deepest} stages", fix=f"at most {constraints.max_pp}")
    yield from _unevenness(plan, constraints)
    yield from _launcher(plan, constraints)
    if constraints.memory_margin is not None and predicted.risk != "safe":
        yield Reason(code="constraints.memory_margin", message=f"risk is {predicted.risk}",
                     fix=f"{constraints.memory_margin:.0%} of memory left free")
    if constraints.max_price_per_hour is not None and (predicted.price_per_hour is None
                                                       or predicted.price_per_hour > constraints.max_price_per_hour * (1 + 1e-9)):
        yield Reason(code="constraints.max_price_per_hour", message=f"{predicted.price_per_hour} per hour",
                     fix=f"at most {constraints.max_price_per_hour}")
    slowest_s = constraints.max_step_time_s
    if slowest_s is not None and (predicted.step_time_s is None or predicted.step_time_s > slowest_s * (1 + 1e-9)):
        yield Reason(code="constraints.max_step_time_s", message=f"a step takes {predicted.step_time_s} s", fix=f"at most {slowest_s}")
