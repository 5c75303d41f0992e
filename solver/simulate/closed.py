"""Schedules without virtual stages in closed form: the longest path through their instructions, exact for stages of any forward and backward times.

One formula for one plan (floats) and for many (arrays): the same operations in the same order, so both give the same digits.
"""
from collections.abc import Callable, Sequence
from typing import Any

from solver.domain.degrees import ScheduleName

Seconds = Any                                              # float, or an array over plans
Larger = Callable[[Seconds, Seconds], Seconds]


def gpipe_s(forward: Sequence[Seconds], backward: Sequence[Seconds], micro_batches: int, larger: Larger) -> Seconds:
    """S + (m - 1) (max F + max B), S the sum of all F and B: a flow shop of equal jobs forward, then one backward."""
    total, longest_f, longest_b = forward[0] + backward[0], forward[0], backward[0]
    for f, b in zip(forward[1:], backward[1:], strict=True):
        total, longest_f, longest_b = total + (f + b), larger(longest_f, f), larger(longest_b, b)
    return total + (micro_batches - 1) * (longest_f + longest_b)


def one_f_one_b_s(forward: Sequence[Seconds], backward: Sequence[Seconds], micro_batches: int, larger: Larger) -> Seconds:
    """max over stages d of (m - p + d) x_d + max_{i >= d} (S_i + (p - 1 - i) F*_i) + max_{j >= d} (S_j - S_d + (p - 1 - j) B*_j).

    x = F + B; S_i = x_0 + ... + x_i; F*_i and B*_i are the largest up to stage i. Stage i warms up on p - 1 - i forwards. On each path from the first
    forward to the last backward every step passes one round: a forward (warm-up), both (steady) or a backward (drain). A step down to the next stage
    and the way back up together pass that stage's x in one round, no more than the slowest stage reached takes in that round: so a longest path
    spends its warm-up on one stage, its steady rounds on one (d), and its drain on one. With fewer than p micro-batches only stages from p - m on
    have a steady round.
    """
    p = len(forward)
    both = [f + b for f, b in zip(forward, backward, strict=True)]
    through, fills, drains = both[0], [forward[0]], [backward[0]]
    passed = [through]
    for i in range(1, p):
        through = through + both[i]
        passed.append(through)
        fills.append(larger(fills[-1], forward[i]))
        drains.append(larger(drains[-1], backward[i]))
    fill, drain = passed[-1], 0.0 * both[-1]
    longest = (micro_batches - 1) * both[-1] + fill
    for d in range(p - 2, max(-1, p - 1 - micro_batches), -1):
        fill = larger(fill, passed[d] + (p - 1 - d) * fills[d])
        drain = larger(both[d + 1] + drain, (p - 1 - d) * drains[d])
        longest = larger(longest, (micro_batches - p + d) * both[d] + fill + drain)
    return longest


CLOSED: dict[ScheduleName, Callable[..., Any]] = {"gpipe": gpipe_s, "1f1b": one_f_one_b_s}
