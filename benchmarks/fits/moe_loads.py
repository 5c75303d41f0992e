"""How many tokens each expert got in the calls of moe.csv, by the rules that its source states.

`balanced`: token i takes experts i, i + E/k, i + 2 E/k, ... (spread over all experts where there are few tokens). `power_law_a`: the experts' shares
are drawn from a power law with exponent a between 1 and 0.8 N tokens, no expert gets a token twice, what is over goes to the emptiest experts of
every rank in turn, and the busiest rank is the one that is timed. DeepSeek's router then keeps the best 4 of 8 groups of experts per token, so tokens
whose experts lie in others fall back to the first experts of the groups that are kept.
"""
import functools

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
DRAWS = 10                                                 # of a random distribution; the table averages five
GROUPS, GROUPS_KEPT = 8, 4


@functools.cache
def counts(tokens: int, experts: int, top_k: int, ranks: int, distribution: str, grouped: bool) -> tuple[Counts, ...]:
    """Tokens of every expert of the timed rank, one array per draw."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(1 if distribution == "balanced" else DRAWS):
        if distribution == "balanced":
            chosen = _balanced(tokens, experts, top_k)
        else:
            chosen = _chosen(_power_law(random, tokens, experts, top_k, ranks, float(distribution.removeprefix("power_law_"))), tokens, top_k)
        each = _in_groups(chosen, experts) if grouped else np.bincount(chosen.ravel(), minlength=experts)
        found.append(each[:experts // ranks])
    return tuple(found)


def _balanced(tokens: int, experts: int, top_k: int) -> Counts:
    stride = -(-experts // top_k)
    first = np.arange(tokens) if tokens >= stride else np.arange(tokens) * stride // tokens
    chosen: Counts = (first[:, None] + stride * np.arange(top_k)) % experts
    return chosen


def _power_law(random: np.random.Generator, tokens: int, experts: int, top_k: int, ranks: int, exponent: float) -> Counts:
    """Tokens of every expert, those of the busiest rank first."""
    lowest, highest = (1.0, 0.8 * tokens) if tokens * top_k > experts else (0.01, 2.0)
    power = 1.0 - exponent
    shares = (lowest**power + (highest**power - lowest**power) * random.random(experts)) ** (1.0 / power)
    each = np.minimum(np.rint(shares / shares.sum() * tokens * top_k).astype(np.int64), tokens).reshape(ranks, -1)
    _level(each, tokens * top_k - int(each.sum()), tokens)
    busiest = int(each.sum(axis=1).argmax())
    each[[0, busiest]] = each[[busiest, 0]]
    return each.ravel()


def _level(each: Counts, missing: int, most: int) -> None:
    """Add `missing` tokens, or take them away, one rank after the other: to its emptiest expert, from its fullest."""
    step = 1 if missing > 0 else -1
    while missing:
        for row in each:
            i = int(row.argmin() if step > 0 else row.argmax())
            if not missing or not 0 <= row[i] + step <= most:
                continue
            room = min(abs(missing) // (2 * len(each)), int(np.partition(row, 1)[1] if len(row) > 1 else most) - int(row[i])) if step > 0 else 0
            row[i] += step * max(1, room)                  # many at once where one at a time gives the same
            missing -= step * max(1, room)


def _chosen(each: Counts, tokens: int, top_k: int) -> Counts:
    """Experts of every token: the fullest expert's tokens first, column by column, so that none gets a token twice."""
    order = np.argsort(-each, kind="stable")
    return np.repeat(order, each[order]).reshape(top_k, tokens).T


def _in_groups(chosen: Counts, experts: int) -> Counts:
    """Tokens of every expert where a token keeps its best groups (by their two best experts; ties: the first) and then its best experts there."""
    tokens, top_k = chosen.shape
    score = np.zeros((tokens, experts), dtype=np.int8)
    np.put_along_axis(score, chosen, 1, axis=1)
    best_two = np.minimum(score.reshape(tokens, GROUPS, -1).sum(axis=2), 2)
    kept = np.argsort(-best_two, axis=1, kind="stable")[:, :GROUPS_KEPT]
    inside = np.zeros((tokens, GROUPS), dtype=bool)
    np.put_along_axis(inside, kept, True, axis=1)
    score[~np.repeat(inside, experts // GROUPS, axis=1)] = -1
    taken = np.argsort(-score, axis=1, kind="stable")[:, :top_k]
    return np.bincount(taken.ravel(), minlength=experts)
