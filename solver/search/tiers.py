"""Tiers of unevenness: what each step up from one tier of launchers to the next gains, all under equal prices."""
from collections.abc import Sequence
from dataclasses import replace

from solver.axes.recompute import ONE_MODE_FOR_ALL
from solver.domain.launchers import TIERS, Launcher, Tier, launchers_of, narrowest, next_tier, rules_of
from solver.domain.options import Constraints
from solver.search.incumbent import Priced
from solver.search.result import Baseline, TierBest


def baseline_of(tier: Tier) -> str:
    """The name under which the best plan of a tier stands among the baselines; `uniform` is that of uneven layers beside a freer answer."""
    return f"tier:{tier}"


def launcher_family(constraints: Constraints, launcher: Launcher) -> Constraints | None:
    """What a launcher that restricts tier and ZeRO stages alone runs, as constraints: priced like the request, not like that launcher's stack.

    None where the ZeRO stages asked for are none of its own.
    """
    rules = rules_of(launcher)
    stages = tuple(z for z in rules.zero_stages if constraints.zero_stage is None or z in constraints.zero_stage)
    return replace(constraints, tier=narrowest(constraints.allowed_tier, rules.tier), zero_stage=stages) if stages else None


def family_above(constraints: Constraints, best: Priced) -> tuple[str, Constraints] | None:
    """The family of the tier above the one asked for, with its name; None at the highest tier.

    Prices stay those of the answer. Where its stack has one recompute mode for all stages, so has every plan compared with it: the gain is then at
    least what is said.
    """
    above = next_tier(constraints.allowed_tier)
    if above is None:
        return None
    family = replace(constraints, tier=above, uniform=False, launcher=None)
    if above == "uneven_degrees" and constraints.rules.framework in ONE_MODE_FOR_ALL:
        family = replace(family, recompute=(best.layout.stages[0].recompute,))
    return baseline_of(above), family


def tier_steps(constraints: Constraints, best: Priced | None, beside: Sequence[Baseline]) -> tuple[TierBest, ...]:
    """The tiers that were searched, from the least uneven up, each with its gain over the one before."""
    if best is None:
        return ()
    named = {b.name: b for b in beside}
    found: list[TierBest] = []
    before: float | None = None
    for tier in TIERS:
        own = tier == constraints.allowed_tier
        name = "uniform" if tier == "uneven_layers" and "uniform" in named else baseline_of(tier)
        if not own and name not in named:
            continue
        step = best.step_s if own else named[name].step_time_s
        found.append(TierBest(tier=tier, launchers=launchers_of(tier), step_time_s=step, baseline=None if own else name,
                              gain=None if step is None or before is None else 1 - step / before, reason=None if own else named[name].reason))
        before = step
    return tuple(found)
