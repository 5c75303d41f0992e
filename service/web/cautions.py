"""What tempers a prediction, in words: the risk of its memory, and comparisons too close to call."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from service.web.figures import percent
from solver.domain.launchers import LAUNCHERS
from solver.domain.problem import Problem

DEFAULT_MEMORY_MARGIN: float = next(f.default for f in fields(Problem) if f.name == "memory_margin")  # type: ignore[assignment]
LAUNCHER_NAMES: dict[str, str] = {name: rules.title for name, rules in LAUNCHERS.items()}
TIER_WORDS: dict[str, str] = {"even": "even stages", "uneven_layers": "uneven layers", "uneven_degrees": "unlike stages"}


def risk_meaning(risk: str | None, margin: float | None) -> str:
    """What the word beside the peak memory says; `margin` as asked for, else the default.

    >>> risk_meaning("over", None)
    'Some stage needs more than the allocator may hold: it would run out of memory.'
    """
    share = f"{100 * (DEFAULT_MEMORY_MARGIN if margin is None else margin):g} %"
    return {
        "safe": f"Every stage leaves at least {share} of its memory free, the memory margin.",
        "risky": f"It is predicted to fit, but some stage leaves less than {share} of its memory free, so that a small error of the prediction is "
        "enough to run out. Set a memory margin to get only safe plans.",
        "over": "Some stage needs more than the allocator may hold: it would run out of memory.",
    }.get(risk or "", "")


def close_calls(result: Mapping[str, Any], predicted: Mapping[str, Any]) -> tuple[str, ...]:
    """Launchers whose best plan is slower by less than the error of the prediction, a sentence each."""
    best, error = predicted.get("step_time_s"), (predicted.get("confidence") or {}).get("expected_error")
    if not best or not error:
        return ()
    found = []
    for b in result.get("baselines") or []:
        slower = b["step_time_s"] / best - 1 if b.get("step_time_s") else 0.0
        if b["name"].startswith("launcher:") and 0 < slower < error:
            launcher = LAUNCHER_NAMES.get(b["name"].removeprefix("launcher:"), b["name"].removeprefix("launcher:"))
            found.append(
                f"The best plan that {launcher} runs is {percent(slower)} slower, less than the {percent(error)} by which a predicted step time "
                "may be off: measured, either may turn out faster."
            )
    return tuple(found)
