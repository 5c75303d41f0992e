"""Exact step times of complete plans, from tables: the recurrence of the schedule plus the longest synchronisation. Many plans at once."""
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from solver.domain.degrees import ScheduleName
from solver.search.labels import StagePick
from solver.search.tables import Floats, Tables
from solver.simulate.batch import makespans

Picks = tuple[StagePick, ...]                              # from the first stage to the last


def exact_times(t: Tables, plans: Sequence[Picks]) -> Floats:
    """Step seconds of each plan under the tables' edges."""
    found = np.zeros(len(plans))
    by_length: dict[int, list[int]] = defaultdict(list)
    for i, plan in enumerate(plans):
        by_length[len(plan)].append(i)
    for members in by_length.values():
        times = [_chunk_times(t, plans[i]) for i in members]
        schedule: ScheduleName = "gpipe" if t.schedule == "gpipe" else "interleaved" if t.virtual_stages > 1 else "1f1b"
        spans = makespans(schedule, np.array([f for f, _, _ in times]), np.array([b for _, b, _ in times]), t.micro_batches)
        found[members] = spans + np.array([q for _, _, q in times])
    return found


def _chunk_times(t: Tables, plan: Picks) -> tuple[Floats, Floats, float]:
    """Forward and backward [stages, virtual stages], and the longest synchronisation."""
    stages, v = len(plan), t.virtual_stages
    forward, backward, sync, at = np.zeros((stages, v)), np.zeros((stages, v)), 0.0, 0
    period = t.layers // v                                 # layers that one round of virtual stages covers
    for i, pick in enumerate(plan):
        u, width, first, last = pick.kind, pick.layers // v, i == 0, i == stages - 1
        q = t.sync_constant[u] + first * t.sync_embedding[u] + last * t.sync_head[u] - (first and last) * t.shared_sync[u]
        for c in range(v):
            ahead = c * period + at                        # layers before this chunk
            hi, lo = t.layers - ahead, t.layers - ahead - width
            f, x = t.forward[u, hi] - t.forward[u, lo], t.time[u, hi] - t.time[u, lo]
            if first and c == 0:
                f, x = f + t.embedding_forward[u], x + t.embedding_time[u]
            if last and c == v - 1:
                f, x = f + t.head_forward[u], x + t.head_time[u]
            if first and last and c == 0:
                f, x = f - t.shared_forward[u], x - t.shared_time[u]
            edge = 0.0 if last and c == v - 1 else t.wrap[u, plan[0].kind] if last else t.edge_s(u, plan[i + 1].kind, lo)
            forward[i, c], backward[i, c] = f + edge, x - f + edge
            q = q + t.sync[u, :, hi] - t.sync[u, :, lo]
        at += width
        sync = max(sync, float(q.max()))
    return forward, backward, sync
