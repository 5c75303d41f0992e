"""How far to trust a calibrated answer: by what the observed runs were like."""
from solver.cost.setting import Setting
from solver.domain.calibration import Calibration
from solver.domain.estimate import Confidence
from solver.domain.layout import Layout

BEYOND = 1.3                                               # factor on the error for each way in which a question is unlike the observed runs
MUCH_LARGER = 4.0                                          # times the GPUs of the largest observed run


def with_calibration(setting: Setting, layout: Layout | None, formulas: Confidence) -> Confidence:
    """The confidence of a calibrated answer, given that of the formulas: the error of the fit on runs that it had not seen.

    Wider for each way in which the question is unlike those runs, and never better than the formulas on an architecture or a family of models that
    was not among them: what was learned there need not hold here.
    """
    calibration = setting.problem.calibration
    if calibration is None or calibration.runs == 0:
        return formulas
    outside, unknown = _beyond(setting, layout, calibration)
    error = calibration.expected_error * BEYOND ** len(outside)
    if unknown:
        error = max(error, formulas.expected_error)
    return Confidence(basis="calibrated", expected_error=min(1.0, error), outside_data=outside)


def _beyond(setting: Setting, layout: Layout | None, calibration: Calibration) -> tuple[tuple[str, ...], bool]:
    """In what a question goes beyond the observed runs, and whether that is a device or a model that nothing was learned of."""
    names = {name for stage in layout.stages for name in stage.groups} if layout is not None else set(setting.machines)
    archs = sorted({setting.machines[name].arch.name for name in names if name in setting.machines} - set(calibration.archs))
    found = [f"no observed run used GPUs of architecture {arch}" for arch in archs]
    experts = setting.model.moe is not None
    if experts not in calibration.experts:
        found.append(f"no observed run trained a model {'with' if experts else 'without'} routed experts")
    unknown = bool(found)
    gpus = layout.replicas * sum(s.tp * s.cp * s.dp for s in layout.stages) if layout is not None else 1
    if gpus > MUCH_LARGER * calibration.most_gpus:
        found.append(f"{gpus} GPUs; the largest observed run used {calibration.most_gpus}")
    return tuple(found), unknown
