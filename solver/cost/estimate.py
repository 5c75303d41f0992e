"""From a strategy or a plan to its estimate."""
from solver.cost.confidence import confidence_of
from solver.cost.parameters import parameter_counts
from solver.cost.setting import setting
from solver.cost.unlike import price_any
from solver.domain.degrees import Strategy
from solver.domain.estimate import Estimate, Reason
from solver.domain.layout import Layout
from solver.domain.placement import expand
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.domain.reading import layout_of, read
from solver.domain.uniform import uniform_layout


def estimate(problem: Problem, what: Strategy | Plan) -> Estimate:
    """What a layout would do. A layout that breaks a rule answers with every reason; one that cannot be laid onto the cluster has no time.

    Raises NotCovered for models and workloads that this version does not price.
    """
    shared = setting(problem)
    layout, reasons = read(problem, what) if isinstance(what, Plan) else layout_for(problem, what)
    if layout is None:
        return Estimate(model=parameter_counts(problem.model), feasible=False, fits_memory=None, risk=None, step_time_s=None, tokens_per_s=None,
                        tokens_per_s_per_gpu=None, model_tflops_per_gpu=None, mfu=None, memory=None, time=None,
                        confidence=confidence_of(shared, None),
                        reasons=distinct(reasons))
    priced = price_any(problem, layout)
    if not reasons:
        return priced
    return Estimate(**{**{name: getattr(priced, name) for name in Estimate.__dataclass_fields__},
                       "feasible": False, "reasons": distinct(reasons + priced.reasons)})


def layout_for(problem: Problem, what: Strategy | Plan) -> tuple[Layout | None, tuple[Reason, ...]]:
    """The layout that a strategy or a plan stands for, None where it cannot be laid onto the cluster, and every rule of laying out that it breaks."""
    if isinstance(what, Plan):
        return layout_of(problem, what)
    counted = uniform_layout(problem, what)
    if counted is not None:
        return counted
    plan, reasons = expand(problem, what)
    if plan is None:
        return None, reasons
    layout, found = layout_of(problem, plan)
    return layout, reasons + found


def distinct(reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
    """Each code once per stage, the first that was found."""
    kept: dict[tuple[str, int | None], Reason] = {}
    for reason in reasons:
        kept.setdefault((reason.code, reason.stage), reason)
    return tuple(kept.values())
