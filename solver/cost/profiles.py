"""How a problem's layer profiles replace formulas.

A measured figure stands for a part's own work at the GPU type, tensor degree and sequences per data rank that it was measured at; a rank of c context
ranks does the work of b / c sequences. Formulas keep their say where nothing was measured, as ratios between what they say here and there: of experts
split over ep and etp, of recompute modes, and with `extrapolate` of other tensor degrees and sequences. Measurements do not tell sequence parallelism
apart: a figure holds with and without it, so the ratios are taken without it.
"""
from collections.abc import Iterable, Iterator
from dataclasses import replace

from solver.cost import memory
from solver.cost.collectives import Path
from solver.cost.ends import EndWork
from solver.cost.fabric import path_in_group
from solver.cost.layer import Work, layer_work
from solver.cost.machine import Machine
from solver.cost.measured import Curve, Measured, Part
from solver.cost.memory import LayerBytes
from solver.cost.setting import Setting
from solver.cost.share import Share
from solver.cost.traffic import tensor_s
from solver.cost.unit import UnitSpec
from solver.domain.degrees import Recompute
from solver.domain.estimate import Reason
from solver.domain.layout import Layout
from solver.domain.model import LayerClass
from solver.domain.profiles import HEAD


def sequences_of(spec: UnitSpec) -> float:
    """Sequences whose work one GPU of a unit does: b / (dp * cp)."""
    return spec.micro_batch_size / (spec.dp * spec.cp)


def _found(measured: Measured, gpu: str, tp: int, part: Part) -> Curve | None:
    """The curve to go by: measured there, or the nearest."""
    return measured.curve(gpu, tp, part) or measured.nearest(gpu, tp, part)


Timed = tuple[Work, float, float]                          # computation, and seconds of tensor-parallel traffic forward and backward


def layer_work_measured(shared: Setting, machine: Machine, layer_class: LayerClass, share: Share, least: bool) -> Timed | None:
    """One layer's computation and tensor-parallel traffic by its profile; None without.

    `least`: a lower bound that falls per sequence as micro-batches grow.
    """
    if shared.measured is None:
        return None
    curve = _found(shared.measured, machine.group.device.name, share.tp, layer_class)
    if curve is None:
        return None

    def formulas(ranks: int, stride: int) -> Path:
        return path_in_group(shared.constants, machine.group, ranks, stride)

    def own(sequences: float, tp: int, ep: int, etp: int) -> tuple[Work, float]:
        at = replace(share, sequences=sequences, cp=1, tp=tp, ep=ep, etp=etp, sequence_parallel=False)
        return layer_work(shared, machine, layer_class, at), tensor_s(shared, formulas, layer_class, at)

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
    plain = memory.activation_bytes(shared, layer_class, share, recompute, selective_memory)
    x = share.sequences / share.cp
    curve = _found(shared.measured, machine.group.device.name, share.tp, layer_class) if shared.measured is not None else None
    if curve is None or curve.activation is None:
        return plain

    def formula(mode: Recompute, sequences: float, tp: int, etp: int) -> LayerBytes:
        at = replace(share, sequences=sequences, cp=1, tp=tp, etp=etp, sequence_parallel=False)
        return memory.activation_bytes(shared, layer_class, at, mode, selective_memory)

    whole = curve.activation.value_at(x, lambda sequences: formula("none", sequences, curve.tp, 1).kept)
    here, there, bare = formula(recompute, x, share.tp, share.etp), formula("none", x, curve.tp, 1), formula("none", x, share.tp, share.etp)
    by = whole / there.kept
    kept = here.kept * by
    if recompute == "full":
        output = output_bytes(shared, machine, share.tp, x, layer_class)
        kept = min(plain.kept if output is None else output * share.replicated, bare.kept * by)
    temporary = memory.activation_bytes(shared, layer_class, share, "none", selective_memory).working
    return LayerBytes(kept=kept, working=temporary + (here.working - bare.working) * by)


def output_bytes(shared: Setting, machine: Machine, tp: int, sequences: float, part: Part) -> float | None:
    """Measured bytes that a part hands to the next, before any scattering over tensor ranks; beyond the data in proportion to the sequences."""
    curve = _found(shared.measured, machine.group.device.name, tp, part) if shared.measured is not None else None
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


def covered(shared: Setting, groups: Iterable[str], tp: int, sequences: float) -> bool:
    """Whether every part that profiles must cover is measured on every one of these groups."""
    measured = shared.measured
    if measured is None or measured.extrapolate:
        return True
    return all(measured.lacking(shared.machines[name].group.device.name, tp, sequences) is None for name in groups)


def bounded(shared: Setting, spec: UnitSpec) -> bool:
    """Whether the layers of a unit have a time, or a lower bound from smaller micro-batches: without either no micro-batch so large is covered."""
    measured = shared.measured
    if measured is None or measured.extrapolate:
        return True
    return all(measured.begins(shared.machines[name].group.device.name, spec.tp, sequences_of(spec), cls)
               for name in spec.groups for cls in shared.classes)


def missing(shared: Setting, layout: Layout) -> tuple[Reason, ...]:
    """What the profiles do not cover of a layout: one reason per combination, at its first stage, with the nearest measurement."""
    measured = shared.measured
    if measured is None or measured.extrapolate:
        return ()
    found = []
    for stage, what, gpu, tp, part in _uncovered(shared, measured, layout):
        span = _span(measured, gpu, tp, part)
        fix = f"{span} per data rank (micro_batch_size / dp), that measurement" if span is not None else "that measurement"
        nearest = f"the nearest measurement is {span}" if span is not None else _known(measured)
        found.append(Reason(code="profile.missing", stage=stage, message=f"the profiles have no {what}; {nearest}",
                            fix=f"{fix}, or profiles.extrapolate true"))
    return tuple(found)


def beyond(shared: Setting, layout: Layout) -> tuple[str, ...]:
    """Where a layout goes beyond the profiles, and what stands for the measurement there."""
    measured = shared.measured
    if measured is None:
        return ()
    found = []
    for _, what, gpu, tp, part in _uncovered(shared, measured, layout):
        span = _span(measured, gpu, tp, part)
        found.append(f"no {what}: " + ("formulas alone" if span is None else f"carried over from {span} by the formulas' ratio"))
    return tuple(found)


def _uncovered(shared: Setting, measured: Measured, layout: Layout) -> Iterator[tuple[int, str, str, int, Part]]:
    """(stage, words, GPU, tensor degree, part) of every combination that is not covered, at the first stage that has it."""
    told: set[tuple[str, int, float]] = set()
    for i, stage in enumerate(layout.stages):
        x = layout.micro_batch_size / (stage.dp * stage.cp)
        for gpu in dict.fromkeys(shared.machines[name].group.device.name for name in stage.groups):
            part = measured.lacking(gpu, stage.tp, x) if (gpu, stage.tp, x) not in told else None
            if part is not None:
                told.add((gpu, stage.tp, x))
                yield i, f"{measured.name_of(part)} on {gpu} at tp {stage.tp} for {_count(x)} per data rank", gpu, stage.tp, part


def _span(measured: Measured, gpu: str, tp: int, part: Part) -> str | None:
    """The nearest curve in words."""
    curve = _found(measured, gpu, tp, part)
    if curve is None:
        return None
    first, last = curve.forward.at[0], curve.forward.at[-1]
    return f"tp {curve.tp} with {_count(first) if first == last else f'{first:g} to {_count(last)}'}"


def _known(measured: Measured) -> str:
    return f"measured are {', '.join(sorted({name for name, _ in measured.curves})[:8])}"


def _count(sequences: float) -> str:
    return f"{sequences:g} sequence{'' if sequences == 1.0 else 's'}"
