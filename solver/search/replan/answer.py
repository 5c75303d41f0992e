"""What replanning answers."""
from dataclasses import dataclass
from typing import Literal

from solver.domain.estimate import Estimate
from solver.domain.plan import Plan

Decision = Literal["move", "stay", "stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes that cross one kind of link: two node groups (or one twice), or `checkpoint` and a group."""

    between: tuple[str, str]
    link: str                                              # the tier within a group, `network` between groups, `storage` for checkpoints
    moved_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """All transfers of a move. `checkpoint_bytes` are states of which no copy is left on a GPU that is still there."""

    seconds: float
    moved_bytes: float
    checkpoint_bytes: float
    traffic: tuple[Traffic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to go on. `total_s` = move and restart + remaining steps; null without a legal layout."""

    name: str
    step_time_s: float | None
    move_s: float
    moved_bytes: float
    total_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """The answer of POST /v1/replans.

    `stop`: the old plan cannot go on and no other was found. `stay` is the old plan on the changed cluster, `plan` what to run from here on, `move`
    what it takes to get there. `break_even_steps` is where the best plan other than the old one begins to pay. `bound_total_s`: no way to go on
    takes less.
    """

    decision: Decision
    reason: str
    stay: Estimate
    plan: Plan | None
    predicted: Estimate | None
    move: Move | None
    cost_s: float
    gain_s: float | None
    break_even_steps: float | None
    total_s: float | None
    bound_total_s: float | None
    gap: float | None
    options: tuple[Option, ...]
