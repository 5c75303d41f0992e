"""How a problem's layer profiles replace formulas.

A measured figure stands for a part's own work at the GPU type, tensor degree and sequences per data rank that it was measured at; a rank of c context
ranks does the work of b / c sequences. Formulas keep their say where nothing was measured, as ratios between what they say here and there: of experts
split over ep and etp, of recompute modes, and with `extrapolate` of other tensor degrees and sequences. Measurements do not tell sequence parallelism
apart: a figure holds with and without it, so the ratios are taken without it.
"""
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache, partial

from solver.cost import memory
from solver.cost.collectives import Path
from solver.cost.ends import EndWork
from solver.cost.fabric import path_in_group
from solver.cost.layer import Work, layer_work
from solver.cost.machine import Machine
from solver.cost.measured import Curve, Part
from solver.cost.memory import LayerBytes
from solver.cost.setting import Setting, memoised, remembered
from solver.cost.share import Share
from solver.cost.traffic import tensor_s
from solver.cost.unit import UnitSpec
from solver.domain.degrees import Recompute
from solver.domain.model import LayerClass
from solver.domain.profiles import HEAD

FORMULAS_KEPT = 4096
UNITS_KEPT = 16_384


def sequences_of(spec: UnitSpec) -> float:
    """Sequences whose work one GPU of a unit does: b / (dp * cp)."""
    return spec.micro_batch_size / (spec.dp * spec.cp)


Timed = tuple[Work, float, float]                          # computation, and seconds of tensor-parallel traffic forward and backward


def layer_work_measured(shared: Setting, machine: Machine, layer_class: LayerClass, share: Share, least: bool) -> Timed | None:
    """One layer's computation and tensor-parallel traffic by its profile; None without.

    `least`: a lower bound that falls per sequence as micro-batches grow.
    """
    if shared.measured is None:
        return None
    curve = shared.measured.closest(machine.group.device.name, share.tp, layer_class)
    if curve is None:
        return None

    own_work, plain = _own_work(shared.problem), _plain(layer_class)

    def own(sequences: float, tp: int, ep: int, etp: int) -> tuple[Work, float]:
        return own_work(machine.group.name, plain, _without(share, sequences, tp, ep, etp))

    def both(sequences: float, tp: int, ep: int, etp: int) -> tuple[float, float]:
        work, tensor = own(sequences, tp, ep, etp)
        return work.forward_s + tensor, work.backward_s + tensor

    x, last = share.sequences / share.cp, curve.forward.at[-1]
    elsewhere = (1.0, 1.0)
    if curve.tp != share.tp or share.ep > 1 or share.etp > 1:
        here, there = both(last, share.tp, share.ep, share.etp), both(last, curve.tp, 1, 1)
        elsewhere = here[0] / there[0], here[1] / there[1]
    times = []
    for direction, points in enumerate((curve.forward, curve.backward)):
        def shape(sequences: float, direction: int = direction) -> float:
            return both(sequences, curve.tp, 1, 1)[direction]

        seconds = points.least(x, shape, shared.measured.extrapolate) if least else points.value_at(x, shape)
        times.append(seconds * elsewhere[direction] / machine.group.speed_factor)
    return _brought_to(*own(x, share.tp, share.ep, share.etp), times[0], times[1], curve.weight_share)


@memoised
def _own_work(shared: Setting) -> Callable[[str, LayerClass, Share], tuple[Work, float]]:
    """Computation and tensor-parallel seconds of a layer by the formulas alone; remembered, as layers measured one by one share them."""

    @lru_cache(maxsize=FORMULAS_KEPT)
    def own_work(group: str, layer_class: LayerClass, share: Share) -> tuple[Work, float]:
        machine = shared.formula_machines[group]

        def formulas(ranks: int, stride: int) -> Path:
            return path_in_group(shared.constants, machine.group, ranks, stride)

        return layer_work(shared, machine, layer_class, share), tensor_s(shared, formulas, layer_class, share)

    return own_work


_own_bytes = remembered(memory.activation_bytes)


@cache
def _plain(layer_class: LayerClass) -> LayerClass:
    """The class that formulas know: all layers of a kind, whatever was measured of each."""
    return replace(layer_class, measured_as=None)


@lru_cache(maxsize=FORMULAS_KEPT)
def _without(share: Share, sequences: float, tp: int, ep: int, etp: int) -> Share:
    """A share without context or sequence parallelism, as measurements are."""
    return replace(share, sequences=sequences, cp=1, tp=tp, ep=ep, etp=etp, sequence_parallel=False)


def _brought_to(work: Work, tensor: float, forward_s: float, backward_s: float, weight_share: float | None) -> Timed:
    """A layer's formulas, computation and traffic, brought to what was measured: each direction in proportion."""
    forward, backward = forward_s / (work.forward_s + tensor), backward_s / (work.backward_s + tensor)
    weight = work.weight_gradient_s * backward if weight_share is None else weight_share * backward_s
    return replace(work, forward_s=forward_s - tensor * forward, backward_s=backward_s - tensor * backward, weight_gradient_s=weight,
                   attention_forward_s=work.attention_forward_s * forward, attention_backward_s=work.attention_backward_s * backward,
                   first_matrix_s=work.first_matrix_s * forward, elementwise_forward_s=work.elementwise_forward_s * forward,
                   ), tensor * forward, tensor * backward


def end_work(shared: Setting, machine: Machine, spec: UnitSpec, name: str, work: EndWork) -> EndWork:
    """The embedding or the head, brought to its profile in the same way; outside the data in proportion to the sequences."""
    if shared.measured is None:
        return work
    x, own = sequences_of(spec), (work.forward_s + work.tensor_forward_s, work.backward_s + work.tensor_backward_s)
    curve = shared.measured.curve(machine.group.device.name, spec.tp, name)
    if curve is None:
        return work
    seconds = [points.value_at(x, lambda sequences: sequences) / machine.group.speed_factor for points in (curve.forward, curve.backward)]
    forward, backward = seconds[0] / own[0], seconds[1] / own[1]
    weight = work.weight_gradient_s * backward if curve.weight_share is None else curve.weight_share * seconds[1]
    return EndWork(forward_s=seconds[0] - work.tensor_forward_s * forward, backward_s=seconds[1] - work.tensor_backward_s * backward,
                   weight_gradient_s=weight, tensor_forward_s=work.tensor_forward_s * forward, tensor_backward_s=work.tensor_backward_s * backward)


def layer_bytes(shared: Setting, machine: Machine, layer_class: LayerClass, share: Share, recompute: Recompute,
                selective_memory: float) -> LayerBytes:
    """Activations of one layer: by formula, or what was measured without recompute, of which modes keep the formulas' share.

    Full recompute keeps the layer's input: the measured output, over t under sequence parallelism, where there is one.
    """
    if shared.measured is None:
        return _own_bytes(shared, layer_class, share, recompute, selective_memory)
    return _bytes(shared.problem)(machine.group.name, layer_class, share, recompute, selective_memory)


@memoised
def _bytes(shared: Setting) -> Callable[[str, LayerClass, Share, Recompute, float], LayerBytes]:
    return lru_cache(maxsize=UNITS_KEPT)(lambda group, *arguments: _measured_bytes(shared, shared.machines[group], *arguments))


def _measured_bytes(shared: Setting, machine: Machine, layer_class: LayerClass, share: Share, recompute: Recompute,
                    selective_memory: float) -> LayerBytes:
    own_bytes, formula_class = partial(_own_bytes, shared), _plain(layer_class)
    plain = own_bytes(formula_class, share, recompute, selective_memory)
    assert shared.measured is not None                     # the caller has looked
    x, curve = share.sequences / share.cp, shared.measured.closest(machine.group.device.name, share.tp, layer_class)
    if curve is None or curve.activation is None:
        return plain

    def formula(mode: Recompute, sequences: float, tp: int, etp: int) -> LayerBytes:
        return own_bytes(formula_class, _without(share, sequences, tp, share.ep, etp), mode, selective_memory)

    whole = curve.activation.value_at(x, lambda sequences: formula("none", sequences, curve.tp, 1).kept)
    here, there, bare = formula(recompute, x, share.tp, share.etp), formula("none", x, curve.tp, 1), formula("none", x, share.tp, share.etp)
    by = whole / there.kept
    kept = here.kept * by
    if recompute == "full":
        output = output_bytes(shared, machine, share.tp, x, layer_class)
        kept = min(plain.kept if output is None else output * share.replicated, bare.kept * by)
    temporary = own_bytes(formula_class, share, "none", selective_memory).working
    return LayerBytes(kept=kept, working=temporary + (here.working - bare.working) * by)


def output_bytes(shared: Setting, machine: Machine, tp: int, sequences: float, part: Part) -> float | None:
    """Measured bytes that a part hands to the next, before any scattering over tensor ranks; beyond the data in proportion to the sequences."""
    curve = shared.measured.closest(machine.group.device.name, tp, part) if shared.measured is not None else None
    return curve.output.value_at(sequences, lambda x: x) if curve is not None and curve.output is not None else None


def boundary_bytes(shared: Setting, spec: UnitSpec) -> float | None:
    """The largest measured output among the classes of layers on a unit's groups: any may stand at a boundary; None where none is measured."""
    if shared.measured is None:
        return None
    x = sequences_of(spec)
    found = [output_bytes(shared, shared.machines[name], spec.tp, x, cls) for name in spec.groups for cls in shared.classes]
    return max((size for size in found if size is not None), default=None)


def held_share(shared: Setting, spec: UnitSpec, part: Part, unsplit_bytes: float) -> float:
    """Measured over counted weights of a part, `unsplit_bytes` those of its formula at ep = etp = 1; 1 where nothing is measured.

    At several groups the largest. At another tensor degree (with `extrapolate`) what was measured says nothing: 1.
    """
    if shared.measured is None:
        return 1.0
    curves = _curves(shared, spec, part)
    found = [curve.parameter_bytes / unsplit_bytes for curve in curves if curve.parameter_bytes is not None and unsplit_bytes > 0.0]
    return max(found, default=1.0)


def update_seconds(shared: Setting, spec: UnitSpec, part: Part, owned_share: float) -> float | None:
    """Measured optimizer step of a part, times the share of its weights that one rank updates; the longest of several groups."""
    found = [curve.update_s * owned_share / shared.machines[name].group.speed_factor for name, curve in _curves_by_group(shared, spec, part)
             if curve.update_s is not None]
    return max(found) if len(found) == len(spec.groups) else None


def _curves_by_group(shared: Setting, spec: UnitSpec, part: Part) -> list[tuple[str, Curve]]:
    if shared.measured is None:
        return []
    found = [(name, shared.measured.curve(shared.machines[name].group.device.name, spec.tp, part)) for name in spec.groups]
    return [(name, curve) for name, curve in found if curve is not None]


def _curves(shared: Setting, spec: UnitSpec, part: Part) -> list[Curve]:
    return [curve for _, curve in _curves_by_group(shared, spec, part)]


def head_bytes(shared: Setting, spec: UnitSpec) -> float | None:
    """Measured bytes that the head holds for one micro-batch, logits included; the largest of several groups."""
    x, found = sequences_of(spec), []
    for curve in _curves(shared, spec, HEAD):
        if curve.activation is not None:
            found.append(curve.activation.value_at(x, lambda sequences: sequences))
    return max(found, default=None)
