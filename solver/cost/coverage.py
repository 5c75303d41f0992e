"""How much of a layout's time rests on the user's own measurements, and what the question goes beyond them in."""
from dataclasses import replace

from solver.cost.beyond import others_beyond
from solver.cost.pipeline import layer_counts, sync_s, total, unit_spec
from solver.cost.setting import Setting
from solver.cost.uncovered import beyond
from solver.cost.units import unit_costs
from solver.domain.estimate import Confidence
from solver.domain.layout import Layout
from solver.domain.profiles import EMBEDDING, HEAD

WAYS = ("forward_s", "backward_s")


def with_profiles(shared: Setting, layout: Layout | None, formulas: Confidence) -> Confidence:
    """The confidence of an answer that rests on layer profiles, given that of the formulas.

    `profile` where every decoder layer is measured, inside the data; collectives and operators alone change no basis. The error is that of measured
    layers and that of the formulas in proportion to the seconds that come from each: ends that nobody measured, edges, gradient traffic and the
    optimizer's step count as formulas.
    """
    if layout is None or shared.problem.profiles is None:
        return formulas
    layers, others = beyond(shared, layout), others_beyond(shared, layout)
    if layers or shared.measured is None:
        return replace(formulas, outside_data=layers + others)
    share = _measured_share(shared, layout)
    error = share * shared.constants.confidence.profile_error + (1.0 - share) * formulas.expected_error
    return Confidence(basis="profile", expected_error=min(error, formulas.expected_error), outside_data=others)


def _measured_share(shared: Setting, layout: Layout) -> float:
    """Of the seconds of all stages, those of layers and ends that are measured."""
    assert shared.measured is not None                     # the caller has looked
    measured = everything = 0.0
    for j, stage in enumerate(layout.stages):
        spec, first, last = unit_spec(layout, stage), j == 0, j == layout.pp - 1
        costs, counts = unit_costs(shared.problem, spec), layer_counts(shared.problem, stage.layers)
        busy = sum(total(costs, counts, first, last, way) for way in WAYS)
        ends = sum(getattr(part, way) for name, part, here in ((EMBEDDING, costs.embedding, first), (HEAD, costs.head, last))
                   if here and name not in shared.measured.parts for way in WAYS)
        measured += layout.micro_batches * (busy - ends)
        everything += layout.micro_batches * busy + max(sync_s(piece, counts, first, last) for piece in costs.sync)
    return measured / everything if everything > 0.0 else 0.0
