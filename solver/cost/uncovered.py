"""What layer profiles cover: which units may be proposed, why a layout is excluded, and where an answer goes beyond the data."""
from collections.abc import Iterable, Iterator

from solver.cost.measured import Measured, Part
from solver.cost.profiles import sequences_of
from solver.cost.setting import Setting
from solver.cost.unit import UnitSpec
from solver.domain.estimate import Reason
from solver.domain.layout import Layout


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
    curve = measured.closest(gpu, tp, part)
    if curve is None:
        return None
    first, last = curve.forward.at[0], curve.forward.at[-1]
    return f"tp {curve.tp} with {_count(first) if first == last else f'{first:g} to {_count(last)}'}"


def _known(measured: Measured) -> str:
    return f"measured are {', '.join(sorted({name for name, _ in measured.curves})[:8])}"


def _count(sequences: float) -> str:
    return f"{sequences:g} sequence{'' if sequences == 1.0 else 's'}"
