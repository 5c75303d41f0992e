"""Interleaved schedules of many plans at once, wave by wave (see solver.simulate.drift): all stages of all plans in one NumPy operation.

The same steps in the same order as solver.simulate.rounds and .drift take for one plan, so that both give the same digits.
"""
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from solver.simulate.drift import MOST_INSTRUCTIONS, TOLERANCE, split
from solver.simulate.rounds import TIMED

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
FOREVER = 1e9
SHAPES_KEPT = 256


def waves_s(forward_s: Floats, backward_s: Floats, rounds: Ints) -> Floats:
    """Seconds of runs of whole rounds, by plan: as `rounds.rounds_s`; NaN where that has no answer.

    forward_s, backward_s: [plans, stages, virtual stages].
    """
    run, found = _Runs.of(forward_s, backward_s), np.full(len(rounds), np.nan)
    for timed in range(1, TIMED + 1):
        now = np.flatnonzero(np.minimum(rounds, TIMED) == timed)
        if not len(now):
            continue
        some = run.only(now)
        before, last = some.whole(timed)
        steps, more = last.ends - before.ends, rounds[now] - timed
        same = (np.abs(steps - steps[0]) <= TOLERANCE * last.ends).all(axis=0)
        some.time(last, timed * run.period, timed * run.period + run.warm_up, timed * run.period)
        spans = last.free.max(axis=0)
        found[now] = np.where(more == 0, spans, spans + more * steps[0])
        drifting = now[~same & (more > 0)]
        if len(drifting):
            found[drifting] = _drifting(run.only(drifting), rounds[drifting])
    return found


@dataclass(slots=True)
class _States:
    """[stages (+ 1), plans] when the last forward and backward ended, row i before stage i and row i + 1 behind it, and the last of both."""

    ahead: Floats
    behind: Floats
    free: Floats

    @property
    def ends(self) -> Floats:
        return np.concatenate((self.ahead[1:], self.behind[:-1]))

    def only(self, plans: Ints | Flags) -> "_States":
        return _States(self.ahead[:, plans], self.behind[:, plans], self.free[:, plans])

    def copy(self) -> "_States":
        return _States(self.ahead.copy(), self.behind.copy(), self.free.copy())


@dataclass(frozen=True, slots=True)
class _Runs:
    """Seconds [stages x virtual stages, plans] of forwards and backwards."""

    stages: int
    virtual: int
    forward: Floats
    backward: Floats

    @classmethod
    def of(cls, forward_s: Floats, backward_s: Floats) -> "_Runs":
        plans, stages, virtual = forward_s.shape
        return cls(stages, virtual, *(np.ascontiguousarray(times.reshape(plans, -1).T) for times in (forward_s, backward_s)))

    @property
    def period(self) -> int:
        return self.stages * self.virtual

    @property
    def warm_up(self) -> int:
        return self.period + self.stages - 2

    def only(self, plans: Ints | Flags) -> "_Runs":
        return _Runs(self.stages, self.virtual, np.ascontiguousarray(self.forward[:, plans]), np.ascontiguousarray(self.backward[:, plans]))

    def start(self) -> _States:
        p, plans = self.stages, self.forward.shape[1]
        return _States(np.zeros((p + 1, plans)), np.zeros((p + 1, plans)), np.zeros((p, plans)))

    def whole(self, rounds: int) -> tuple[_States, _States]:
        """The states one round before the last forward of the first stage, and behind it."""
        states, end = self.start(), rounds * self.period
        self.time(states, 0, end - self.period, end)
        before = states.copy()
        self.time(states, end - self.period, end, end)
        return before, states

    def time(self, states: _States, first: int, last: int, total: int, gaps: list[Floats] | None = None) -> None:
        """As `drift._Run.time`, with `total` waves that have a forward of the first stage."""
        p, v, period, warm_up, (forward, backward) = self.stages, self.virtual, self.period, self.warm_up, _rows(self.stages, self.virtual)
        ahead, behind, free = states.ahead, states.behind, states.free
        for wave in range(first, last):
            low, high = max(0, wave - total + 1), min(p, wave + 1)
            if low < high:
                if low == 0:
                    ahead[0] = ahead[p] if wave // p % v else 0.0
                if gaps is not None:
                    gaps.append(free - ahead[:p])
                now = np.maximum(free[low:high], ahead[low:high])
                now += self.forward[forward[wave % period, low:high]]
                free[low:high] = ahead[low + 1:high + 1] = now
            low, high = max(0, warm_up - wave), min(p, total + warm_up - wave)
            if low < high:
                if high == p:
                    behind[p] = behind[0] if (wave + p - 1 - warm_up) // p % v else 0.0
                if gaps is not None:
                    gaps.append(free - behind[1:])
                now = np.maximum(free[low:high], behind[low + 1:high + 1])
                now += self.backward[backward[wave % period, low:high]]
                free[low:high] = behind[low:high] = now


@lru_cache(maxsize=SHAPES_KEPT)
def _rows(stages: int, virtual: int) -> tuple[Ints, Ints]:
    """[waves of a round, stages] which virtual stage each stage runs forward and backward, counted through all stages."""
    wave, stage, warm_up = np.arange(stages * virtual)[:, None], np.arange(stages), stages * virtual + stages - 2
    return (stage * virtual + (wave - stage) // stages % virtual,
            stage * virtual + virtual - 1 - (wave + stage - warm_up) // stages % virtual)


def _drifting(run: _Runs, rounds: Ints) -> Floats:
    """As `drift.drifting_s`, for each plan."""
    period, p, forever = run.period, run.stages, int(rounds.max()) * run.period
    wave, _ = split(p, run.virtual, TIMED)
    plans, left = np.arange(len(rounds)), rounds - wave // period
    most = MOST_INSTRUCTIONS // (2 * p * period)
    added, drain = np.zeros(len(rounds)), run.start()
    spans, active, states = np.full(len(rounds), np.nan), run, run.start()
    run.time(states, 0, wave, forever)
    seen, known = [states.copy()], np.ones(len(rounds), dtype=np.int64)
    for _ in range(most):
        active.time(states, wave, wave + period, forever)
        seen, left, known = [*seen[-2:], states.copy()], left - 1, np.minimum(known + 1, 3)
        ends = states.ends
        steps = ends - seen[-2].ends
        same = (np.abs(steps - steps[0]) <= TOLERANCE * ends).all(axis=0)
        added[plans[same]] = (left * steps[0])[same]
        left = np.where(same, 0, left)
        if len(seen) == 3:
            _jump(active, states, seen, steps, left, known, wave)
        done = left == 0
        for into, of in ((drain.ahead, states.ahead), (drain.behind, states.behind), (drain.free, states.free)):
            into[:, plans[done]] = of[:, done]
        spans[plans[done]] = 0.0
        if done.all():
            break
        if done.any():
            plans, left, known, active, states = plans[~done], left[~done], known[~done], active.only(~done), states.only(~done)
            seen = [state.only(~done) for state in seen]
    run.time(drain, forever, forever + run.warm_up, forever)
    return np.asarray(spans + (drain.free.max(axis=0) + added))


def _jump(run: _Runs, states: _States, seen: list[_States], steps: Floats, left: Ints, known: Ints, wave: int) -> None:
    """Take those plans whose last two rounds were alike over as many rounds more as that lasts; changes states, seen, left and known in place."""
    p, ends = run.stages, states.ends
    alike = (np.abs(steps - (seen[1].ends - seen[0].ends)) <= TOLERANCE * ends).all(axis=0)
    some = np.flatnonzero(alike & (left > 0) & (known == 3))
    if not len(some):
        return
    more = np.minimum(left[some], _lasting(run.only(some), [state.only(some) for state in seen], wave))
    some, more = some[more > 0], more[more > 0]
    left[some] -= more
    known[some] = 1
    states.ahead[1:, some] += more * steps[:p, some]
    states.behind[:p, some] += more * steps[p:, some]
    states.free[:, some] = states.behind[:p, some]
    for into, of in ((seen[-1].ahead, states.ahead), (seen[-1].behind, states.behind), (seen[-1].free, states.free)):
        into[:, some] = of[:, some]


def _lasting(run: _Runs, seen: list[_States], wave: int) -> Ints:
    """As `drift._lasting`, for each plan."""
    rounds: list[Floats] = []
    for states in seen[:2]:
        gaps: list[Floats] = []
        run.time(states.copy(), wave, wave + run.period, wave + 2 * run.period, gaps)
        rounds.append(np.concatenate(gaps))
    before, gap = rounds
    slack, change = TOLERANCE * seen[2].ends.max(axis=0), gap - before
    other = np.where(gap >= 0.0, before < -slack, before > slack).any(axis=0)
    shrinks = np.where(gap >= 0.0, change < 0.0, change > 0.0)
    room = np.where(gap >= 0.0, gap + slack, slack - gap)
    lasts = np.divide(room, np.abs(change), out=np.full_like(gap, FOREVER), where=shrinks).min(axis=0)
    return np.asarray(np.where(other, 0, np.floor(np.minimum(lasts, FOREVER)))).astype(np.int64)
