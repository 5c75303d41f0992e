"""What every unit of one problem shares: machines, constants, layer classes. Built once per problem and kept in a bounded cache."""
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from solver.catalog.efficiency import Efficiency, OptimizerCost, Stack, efficiency
from solver.cost.calibration import calibrated
from solver.cost.machine import Machine, machine
from solver.cost.measured import Measured, measured_of
from solver.cost.measured_collectives import Key, Measurement, collectives_of
from solver.cost.operator_profiles import as_floors, with_operators
from solver.domain.identity import Same
from solver.domain.model import Architecture, LayerClass
from solver.domain.problem import Problem
from solver.domain.profiles import CollectiveOp, classes_of
from solver.domain.workload import CustomOptimizer, TrainingWorkload
from solver.errors import Fault, NotCovered

T = TypeVar("T")
Arguments = ParamSpec("Arguments")
PROBLEMS_KEPT = 32
RESULTS_KEPT = 100_000                                     # of remembered functions, by problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One problem, ready to be priced. Byte sizes are of one element: activations, weights, gradients as accumulated."""

    problem: Problem
    model: Architecture
    workload: TrainingWorkload
    constants: Efficiency
    machines: dict[str, Machine]                           # by node group, with the request's operator profiles
    formula_machines: dict[str, Machine]                   # without them
    floor_machines: dict[str, Machine]                     # with them as lower bounds
    classes: tuple[LayerClass, ...]                        # distinct, in order of first appearance
    layers: tuple[LayerClass, ...]                         # of every layer
    counts: dict[LayerClass, int]                          # layers of each class
    optimizer: OptimizerCost
    activation_element: float
    gradient_element: float
    measured: Measured | None                              # the request's layer profiles
    collectives: Mapping[Key, Mapping[CollectiveOp, Measurement]] | None     # the request's collective profiles
    results: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)     # of remembered functions

    @property
    def optimizer_state_bytes(self) -> float:
        """Per parameter, beside weights and gradients: in fp32 training the weights are their own master copy."""
        return max(0.0, self.optimizer.state_bytes - (4.0 if self.workload.precision == "fp32" else 0.0))


def overlapping(shared: Setting, stack: Stack) -> tuple[float, float]:
    """Shares of (gradient, tensor-parallel) traffic that a stack runs beside computation. The options for it came after fused attention did: a stack
    that still runs unfused attention does no better than one of which nothing is known."""
    if shared.workload.attention_kernel != "unfused":
        return stack.gradient_overlap, stack.tensor_overlap
    plain = shared.constants.stack(None)
    return min(stack.gradient_overlap, plain.gradient_overlap), min(stack.tensor_overlap, plain.tensor_overlap)


def setting(problem: Problem) -> Setting:
    """The shared part of a problem's costs; raises NotCovered for what this version does not price."""
    return _setting(Same(problem))


@lru_cache(maxsize=PROBLEMS_KEPT)
def _setting(key: Same[Problem]) -> Setting:
    problem = key.value
    model, workload = problem.model, problem.workload
    if not isinstance(workload, TrainingWorkload):
        raise NotCovered(Fault(pointer="/workload/kind", message="serving is not priced by this version", legal="training"))
    if model.kind not in ("decoder", "encoder_decoder"):
        raise NotCovered(Fault(pointer="/model/architecture/kind", message=f"models of kind {model.kind} are not priced by this version",
                               legal="decoder, encoder_decoder"))
    if workload.training != "full":
        raise NotCovered(Fault(pointer="/workload/training", message=f"{workload.training} training is not priced by this version", legal="full"))
    constants = efficiency() if problem.calibration is None else calibrated(efficiency(), problem.calibration)
    layers = classes_of(model, problem.profiles)
    classes = tuple(dict.fromkeys(layers))
    formulas = {g.name: machine(constants, g, workload) for g in problem.cluster.node_groups}
    machines = {name: with_operators(m, problem.profiles, workload.precision) for name, m in formulas.items()}
    wide = 4.0 if workload.precision == "fp32" else 2.0
    return Setting(problem=problem, model=model, workload=workload, constants=constants,
                   machines=machines, formula_machines=formulas, floor_machines={name: as_floors(m) for name, m in machines.items()},
                   classes=classes, layers=layers, counts=dict(Counter(layers)), optimizer=_optimizer(constants, workload),
                   measured=measured_of(problem.profiles, classes), collectives=collectives_of(problem.profiles), activation_element=wide,
                   gradient_element=4.0 if workload.gradient_precision == "fp32" or workload.precision == "fp32" else 2.0)


def _optimizer(constants: Efficiency, workload: TrainingWorkload) -> OptimizerCost:
    named = workload.optimizer
    if isinstance(named, CustomOptimizer):
        return OptimizerCost(state_bytes=named.bytes_per_parameter, moved_bytes=2.0 * named.bytes_per_parameter + 10.0)
    return constants.optimizers[named]


def memoised(build: Callable[[Setting], Callable[..., T]]) -> Callable[[Problem], Callable[..., T]]:
    """A function of (problem) that keeps `build`'s result for the last problems, by identity."""

    @lru_cache(maxsize=PROBLEMS_KEPT)
    def kept(key: Same[Problem]) -> Callable[..., T]:
        return build(_setting(key))

    return lambda problem: kept(Same(problem))


def remembered(function: Callable[Concatenate[Setting, Arguments], T]) -> Callable[Concatenate[Setting, Arguments], T]:
    """The function with its results kept in the setting, so that units that agree in the arguments share them. For functions without effects.

    What arrays give, which have no hash, is not kept.
    """

    @wraps(function)
    def kept(shared: Setting, *given: Arguments.args, **named: Arguments.kwargs) -> T:
        results, key = shared.results, (function, *given, *named.values())
        try:
            found: T = results[key]
        except KeyError:
            if len(results) >= RESULTS_KEPT:
                results.clear()
            found = results[key] = function(shared, *given, **named)
        except TypeError:
            return function(shared, *given, **named)
        return found

    return kept                                            # type: ignore[return-value]
