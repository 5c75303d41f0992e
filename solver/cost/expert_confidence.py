"""How much less certain a step time is for mixtures of experts: by how far the question lies from the runs that were measured."""
from math import log2

from solver.catalog.efficiency import ExpertConfidence
from solver.cost.setting import Setting
from solver.domain.layout import Layout, StageLayout
from solver.domain.model import MoE


def expert_error(setting: Setting, layout: Layout | None, dense: float) -> float:
    """Expected relative error of a model with experts, given that of dense models on the same devices.

    Up to as many experts as measured models have, between the dense model's error and theirs, by the logarithm of the count. Beyond, and where the
    expert group is larger or its experts get fewer tokens than in any measured run, `per_doubling` more for every doubling; latent attention, which
    no measured run has, counts as one.
    """
    moe, known = setting.model.moe, setting.constants.confidence.experts
    if moe is None:
        return dense
    measured = max(dense, known.error)
    share = min(1.0, log2(moe.num_experts) / log2(known.experts))
    outside = _doublings(moe.num_experts, known.experts) + (setting.model.mla is not None)
    if layout is not None:
        outside += max(_beyond(setting, layout, stage, moe, known) for stage in layout.stages)
    return (dense + share * (measured - dense)) * (1.0 + known.per_doubling * outside)


def _beyond(setting: Setting, layout: Layout, stage: StageLayout, moe: MoE, known: ExpertConfidence) -> float:
    tokens = layout.micro_batch_size / stage.dp * setting.workload.seq_len / stage.cp / stage.tp * stage.etp
    rows = tokens * moe.top_k / max(1.0, moe.num_experts / stage.ep)
    return _doublings(stage.ep, known.ranks) + _doublings(known.rows, rows)


def _doublings(value: float, known: float) -> float:
    return max(0.0, log2(value / known))
