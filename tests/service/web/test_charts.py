"""Geometry of charts and of the cluster map."""

import pytest

from service.web.charts import MAX_TIMELINE_BARS, gap_chart, stacked, timeline
from service.web.cluster_map import MAX_BOXES_PER_GROUP, cluster_map, stage_colour
from tests.service.web.fake import large_plan, mixed_plan, plain, progress_at, trace_of


def test_segments_lie_end_to_end_and_leave_out_what_is_nothing() -> None:
    made = stacked([("a", "c1", 30.0), ("b", "c2", 0.0), ("c", "c3", 50.0)], 100.0)
    assert [(s.label, s.x, s.width) for s in made] == [("a", 0.0, 30.0), ("c", 30.0, 50.0)]
    assert stacked([], 0.0) == ()


def test_the_best_plan_stays_above_the_bound_on_the_chart() -> None:
    chart = gap_chart([progress_at(i / 10) for i in range(26)])
    assert chart is not None

    def heights(path: str) -> list[float]:
        return [float(p.split(",")[1]) for p in path[1:].split(" L")]

    assert heights(chart.incumbent) == sorted(heights(chart.incumbent))  # falls: down the page
    assert heights(chart.bound) == sorted(heights(chart.bound), reverse=True)  # rises
    assert max(heights(chart.incumbent)) <= min(heights(chart.bound)) + 0.1
    assert all(0 <= t.at <= chart.height for t in chart.y_ticks)


@pytest.mark.parametrize("history", [[], [progress_at(0.0) | {"incumbent_s": None, "bound_s": None}], [progress_at(0.0) | {"bound_s": 0.0}]])
def test_no_chart_before_there_is_anything_to_draw(history: list) -> None:
    assert gap_chart(history) is None


def test_a_search_without_a_bound_is_drawn_all_the_same() -> None:
    chart = gap_chart([progress_at(2.0) | {"bound_s": None}])
    assert chart is not None
    assert (bool(chart.incumbent), chart.bound, chart.area) == (True, "", "")


def test_the_timeline_has_a_row_for_each_stage() -> None:
    drawn = timeline(trace_of(4, 16))
    assert drawn is not None
    assert [r.text for r in drawn.rows] == ["stage 0", "stage 1", "stage 2", "stage 3"]
    assert len(drawn.bars) == 4 * 16 * 2
    assert {b.colour for b in drawn.bars} == {"forward", "backward"}
    assert max(b.x + b.width for b in drawn.bars) <= drawn.width
    assert drawn.shown_s == drawn.total_s


def test_a_timeline_too_long_to_draw_says_how_much_it_shows() -> None:
    drawn = timeline(trace_of(8, 400))
    assert drawn is not None
    assert len(drawn.bars) == MAX_TIMELINE_BARS
    assert drawn.shown_s < drawn.total_s
    assert timeline({"traceEvents": []}) is None


def test_every_gpu_of_a_plan_is_on_the_map() -> None:
    groups = [
        {"name": "h100", "gpu": "H100-SXM5-80GB", "nodes": 4, "gpus_per_node": 8},
        {"name": "a100", "gpu": "A100-SXM4-80GB", "nodes": 9, "gpus_per_node": 8},
    ]
    h100, a100 = cluster_map(plain(mixed_plan()), groups)
    assert (h100.used_gpus, a100.used_gpus) == (32, 64)
    assert [[s.stage for s in b.slots] for b in h100.boxes] == [[1], [2], [1], [2]]
    assert a100.boxes[8].title == "node 8: idle"
    assert a100.boxes[0].title == "node 0: stage 0: 8 GPUs"


def test_a_node_that_two_stages_share_is_split() -> None:
    plan = {
        "pipelines": [
            {
                "stages": [
                    {"devices": [{"node_group": "a", "node": 0, "gpus": [0, 1]}]},
                    {"devices": [{"node_group": "a", "node": 0, "gpus": [2, 3, 4]}]},
                ]
            }
        ]
    }
    (group,) = cluster_map(plan, [{"name": "a", "gpu": {"name": "x"}, "nodes": 1, "gpus_per_node": 8}])
    assert [(s.stage, s.gpus, s.x) for s in group.boxes[0].slots] == [(0, 2, 0.0), (1, 3, 25.0), (None, 3, 62.5)]
    assert sum(s.share for s in group.boxes[0].slots) == 100


def test_a_large_group_is_shown_as_runs() -> None:
    (group,) = cluster_map(plain(large_plan()), [{"name": "h100", "gpu": "H100-SXM5-80GB", "nodes": 2048, "gpus_per_node": 8}])
    assert group.nodes > MAX_BOXES_PER_GROUP
    assert [b.count for b in group.boxes] == [128] * 16


def test_stage_colours_repeat_but_are_never_idle() -> None:
    assert len({stage_colour(i) for i in range(12)}) == 12
    assert stage_colour(12) == stage_colour(0) != stage_colour(None)
