"""Interleaved runs in which some stage works off, round by round, what it is ahead: timed over many rounds at once.

Wave u runs forward u - i of stage i, and backward u + i - w of it, w = (v - 1) p + 2 (p - 1). Then every instruction waits for its own stage's last
one and for one of the wave before: a forward for that of the stage before (stage 0: of the last stage), a backward for that of the stage behind
(last stage: of stage 0, or in the last virtual stage its own forward).

Between the same waves of two rounds every state (end of a stage's last forward or backward) advances by its step. As long as the steps stay the same
and every instruction waits for the same one of the two, the gap between the two changes by the same time every round: so many rounds pass at once as
all gaps keep their signs. Exact up to rounding.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf

TOLERANCE = 1e-12                                          # of a time, when two are called the same
MOST_INSTRUCTIONS = 2_000_000                              # timed one by one: about two seconds
Rows = list[list[float]]


@dataclass(slots=True)
class _State:
    """When the last forward and backward of each stage ended, and the last of both."""

    ahead: list[float]
    behind: list[float]
    free: list[float]

    def copy(self) -> "_State":
        return _State(self.ahead[:], self.behind[:], self.free[:])

    @property
    def ends(self) -> list[float]:
        return self.ahead + self.behind


@dataclass(frozen=True, slots=True)
class _Run:
    """A run's seconds by wave (modulo a round) and stage."""

    stages: int
    virtual: int
    waves: int                                             # with a forward of the first stage
    forward: Rows
    backward: Rows

    @property
    def warm_up(self) -> int:
        """Waves before the first backward of the first stage."""
        return (self.virtual - 1) * self.stages + 2 * (self.stages - 1)

    def time(self, state: _State, first: int, last: int, gaps: list[float] | None = None) -> None:
        """Take a state from wave `first` to before wave `last`; `gaps`: own predecessor less the other, of every instruction."""
        p, v, warm_up = self.stages, self.virtual, self.warm_up
        ahead, behind, free = state.ahead, state.behind, state.free
        for wave in range(first, last):
            row, around = self.forward[wave % (p * v)], ahead[p - 1] if wave // p % v else 0.0
            for i in range(min(p, wave + 1) - 1, max(0, wave - self.waves + 1) - 1, -1):
                now, other = free[i], ahead[i - 1] if i else around
                if gaps is not None:
                    gaps.append(now - other)
                free[i] = ahead[i] = (other if other > now else now) + row[i]
            row, around = self.backward[wave % (p * v)], behind[0] if (wave + p - 1 - warm_up) // p % v else 0.0
            for i in range(max(0, warm_up - wave), min(p, self.waves + warm_up - wave)):
                now, other = free[i], behind[i + 1] if i < p - 1 else around
                if gaps is not None:
                    gaps.append(now - other)
                free[i] = behind[i] = (other if other > now else now) + row[i]


def split(stages: int, virtual: int, rounds: int) -> tuple[int, int]:
    """(first wave, number) of whole rounds in which every wave has a forward and a backward of every stage."""
    period = stages * virtual
    warm_up = period + stages - 2
    whole = max(0, rounds * period - warm_up) // period
    return (rounds - whole) * period, whole


def drifting_s(seconds: Sequence[float], stages: int, virtual: int, rounds: int) -> float | None:
    """Seconds of a run of at least three rounds, given those of every stage, virtual stage and pass; None where too many rounds had to be timed."""
    run = _made(seconds, stages, virtual, rounds)
    period, (wave, left) = stages * virtual, split(stages, virtual, rounds)
    most = MOST_INSTRUCTIONS // (2 * stages * period)
    state, added = _State([0.0] * stages, [0.0] * stages, [0.0] * stages), 0.0
    run.time(state, 0, wave)
    seen, timed = [state.copy()], 0
    while left:
        if timed >= most:
            return None
        run.time(state, wave, wave + period)
        seen, left, timed = [*seen[-2:], state.copy()], left - 1, timed + 1
        steps = _steps(seen[-2], seen[-1])
        if all(abs(step - steps[0]) <= TOLERANCE * end for step, end in zip(steps, state.ends, strict=True)):
            added, left = left * steps[0], 0
        elif left and len(seen) == 3 and _alike(seen, steps):
            more = min(left, _lasting(run, seen, wave))
            if more:
                for i in range(stages):
                    state.ahead[i] += more * steps[i]
                    state.behind[i] = state.free[i] = state.behind[i] + more * steps[stages + i]
                seen, left = [state.copy()], left - more
    end = rounds * period
    run.time(state, wave + split(stages, virtual, rounds)[1] * period, end + run.warm_up)
    return max(state.free) + added


def _made(seconds: Sequence[float], stages: int, virtual: int, rounds: int) -> _Run:
    p, v, warm_up = stages, virtual, (virtual - 1) * stages + 2 * (stages - 1)
    forward = [[seconds[2 * (i * v + (wave - i) // p % v)] for i in range(p)] for wave in range(p * v)]
    backward = [[seconds[2 * (i * v + v - 1 - (wave + i - warm_up) // p % v) + 1] for i in range(p)] for wave in range(p * v)]
    return _Run(p, v, rounds * p * v, forward, backward)


def _steps(one: _State, other: _State) -> list[float]:
    return [b - a for a, b in zip(one.ends, other.ends, strict=True)]


def _alike(seen: list[_State], steps: list[float]) -> bool:
    """Whether the steps are those of the round before."""
    return all(abs(step - before) <= TOLERANCE * end for step, before, end in zip(steps, _steps(seen[0], seen[1]), seen[2].ends, strict=True))


def _lasting(run: _Run, seen: list[_State], wave: int) -> int:
    """For how many rounds more the last two rounds' choices hold; 0 where they differ. Waves are numbered as in any steady round."""
    rounds: list[list[float]] = []
    for state in seen[:2]:
        gaps: list[float] = []
        run.time(state.copy(), wave, wave + run.stages * run.virtual, gaps)
        rounds.append(gaps)
    slack, least = TOLERANCE * max(seen[2].ends), inf
    for before, gap in zip(*rounds, strict=True):
        change = gap - before
        if gap >= 0.0:
            if before < -slack:
                return 0
            if change < 0.0:
                least = min(least, (gap + slack) / -change)
        else:
            if before > slack:
                return 0
            if change > 0.0:
                least = min(least, (slack - gap) / change)
    return floor(min(least, 1e9))
