"""How far to trust a predicted step time."""
from solver.cost.bubble import CLOSED_FORMS
from solver.cost.calibration_confidence import with_calibration
from solver.cost.coverage import with_profiles
from solver.cost.expert_confidence import expert_error
from solver.cost.setting import Setting
from solver.domain.estimate import Confidence
from solver.domain.layout import Layout

WIDEST = 1.0


def confidence_of(setting: Setting, layout: Layout | None) -> Confidence:
    """Expected relative error of the step time: the mean error on published runs of the least known device, widened for mixtures of experts by how
    far they are from measured ones, for schedules priced by a closed form, and for several device types in one job."""
    constants = setting.constants.confidence
    names = {name for stage in layout.stages for name in stage.groups} if layout is not None else set(setting.machines)
    machines = [setting.machines[name] for name in names if name in setting.machines]
    archs = {machine.arch.name for machine in machines}
    error = expert_error(setting, layout, max((machine.expected_error for machine in machines), default=WIDEST))
    if layout is not None and layout.schedule in CLOSED_FORMS:
        error *= constants.preview_factor
    if len(archs) > 1:
        error *= constants.scaled_factor
    formulas = Confidence(basis="analytic", expected_error=min(WIDEST, error))
    return with_profiles(setting, layout, with_calibration(setting, layout, formulas))
