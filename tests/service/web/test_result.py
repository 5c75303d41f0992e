"""What the result page says."""

import pytest

from service.web.cautions import risk_meaning
from service.web.result import chunk_seconds, result_view
from tests.service.web.fake import DONE, INFEASIBLE, FakeBackend, body_of_result, mixed_plan, trace_of


def resource(**changes: object) -> dict:
    return {"id": DONE, "result": body_of_result(mixed_plan(), 24.1) | changes, "request": FakeBackend().request}


@pytest.mark.parametrize(
    ("changes", "headline", "said"),
    [
        ({}, "Optimal: 24.1 s per step", "faster than 24.1 s (gap 0 %)"),
        ({"outcome": "feasible", "gap": 0.05, "bound": {"step_time_s": 22.9}}, "Best found: 24.1 s per step", "At most 5.24 % slower than the best"),
        ({"outcome": "feasible", "gap": None, "bound": {"step_time_s": None}}, "Best found: 24.1 s per step", "No bound yet"),
        ({"outcome": "feasible", "gap": 1.0, "bound": {"step_time_s": 0.0}}, "Best found: 24.1 s per step", "No bound yet"),
    ],
)
def test_the_outcome_in_words(changes: dict, headline: str, said: str) -> None:
    view = result_view(resource(**changes))
    assert view.headline == headline
    assert said in view.explanation


def test_an_infeasible_result_has_no_plan_to_show() -> None:
    view = result_view(FakeBackend().fixed[INFEASIBLE])
    assert (view.headline, view.plan, view.stages, view.map) == ("No layout fits", None, (), ())


def test_alike_stages_of_several_pipelines_are_one_row() -> None:
    view = result_view(resource(), {0: 0.12})
    assert [(s.stage, s.layers, s.num_layers, s.gpus, s.nodes, s.gpu_count) for s in view.stages] == [
        (0, "0–15", 16, ("A100-SXM4-80GB",), ("a100 0–1, 4–5",), 16),
        (1, "16–39", 24, ("H100-SXM5-80GB",), ("h100 0, 2",), 8),
        (2, "40–63", 24, ("H100-SXM5-80GB",), ("h100 1, 3",), 8),
        (3, "64–79", 16, ("A100-SXM4-80GB",), ("a100 2–3, 6–7",), 16),
    ]
    assert [s.micro_batch_s for s in view.stages] == [0.12, None, None, None]
    assert (view.gpus_used, view.gpus_total, view.pipelines, view.pp) == (96, 96, 2, 4)


def test_unlike_pipelines_are_told_apart() -> None:
    found = resource()
    found["result"]["plan"]["pipelines"][1]["stages"][0]["tp"] = 8
    found["result"]["plan"]["pipelines"][1]["stages"][0]["dp"] = 2
    rows = [s for s in result_view(found).stages if s.stage == 0]
    assert [(s.pipelines, s.degrees["tp"]) for s in rows] == [("0", 4), ("1", 8)]


def test_baselines_say_how_much_slower_they_are() -> None:
    found = resource(baselines=[{"name": "uniform", "step_time_s": 48.2}, {"name": "only:a100", "step_time_s": None, "reason": "does not fit"}])
    mine, uniform, alone = result_view(found).comparisons
    assert (mine.best, mine.bar) == (True, 50.0)
    assert (uniform.name, uniform.slower, uniform.bar) == ("Best uniform layout", 1.0, 100.0)
    assert (alone.name, alone.slower, alone.reason) == ("a100 alone", None, "does not fit")


@pytest.mark.parametrize(
    ("name", "slower", "notes"),
    [("launcher:megatron", 1.02, 1), ("launcher:megatron", 1.0, 0), ("launcher:megatron", 1.9, 0), ("uniform", 1.02, 0)],
)
def test_a_lead_within_the_error_is_said(name: str, slower: float, notes: int) -> None:
    found = resource(baselines=[{"name": name, "step_time_s": 24.1 * slower}])
    said = result_view(found).close_calls
    assert len(said) == notes
    assert all("Megatron-LM runs is 2.00 % slower" in note for note in said)


@pytest.mark.parametrize(
    ("risk", "margin", "said"), [("safe", 0.05, "at least 5 %"), ("risky", None, "less than 8 %"), ("over", 0.1, "out of memory")]
)
def test_the_risk_is_explained(risk: str, margin: float | None, said: str) -> None:
    assert said in risk_meaning(risk, margin)


def test_parts_of_the_step_fill_the_bar() -> None:
    view = result_view(resource())
    assert sum(s.width for s in view.time) == pytest.approx(100, abs=0.01)
    assert sum(s.value for s in view.time) == pytest.approx(24.1)


def test_micro_batch_time_is_forward_plus_backward() -> None:
    assert chunk_seconds(trace_of(2, 8)) == pytest.approx({0: 0.12, 1: 0.12})
    assert chunk_seconds(None) == {}
