"""Predictions of large mixtures of experts stay near published figures that nothing was fitted to."""
from pathlib import Path

import pytest

from benchmarks.experts import body_of, flops_per_token, page, runs
from solver.catalog.loader import preset

RUNS = list(runs())
PAGE = Path(__file__).parents[1] / "docs" / "accuracy-experts.md"


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_predictions_are_within_what_they_say_of_themselves(run):
    off = abs(run.predicted / run.published - 1.0)
    assert off <= 2.0 * run.answer.confidence.expected_error
    assert run.answer.confidence.expected_error <= 0.5


def test_on_average_they_are_within_a_sixth():
    assert sum(abs(run.predicted / run.published - 1.0) for run in RUNS) / len(RUNS) < 1 / 6


def test_the_page_has_every_run():
    text = PAGE.read_text()
    assert all(f"| {run.name} | {run.published:,.0f} {run.unit} |" in text for run in RUNS)
    assert text.splitlines()[:3] == "\n".join(page()).splitlines()[:3]


def test_counted_flops_are_those_of_the_active_parameters():
    """DeepSeek-V3: 36.7 G active parameters without the embedding's 0.9 G, and 61 layers of attention 320 wide in sum."""
    model = preset("deepseek-v3")
    causal, full = (flops_per_token(model, 4096, attention) for attention in ("causal", "full"))
    assert full - causal == pytest.approx(3 * 61 * 128 * 320 * 4096)
    assert 2.2e11 < causal < 2.8e11


def test_a_run_is_asked_as_megatron_core():
    body = body_of({"model": "mixtral-8x7b", "cluster": {"gpu": "A100"}, "workload": {"seq_len": 1}, "strategy": {"pp": 2}})
    assert body["strategy"]["framework"] == "megatron" and body["model"] == {"preset": "mixtral-8x7b"}
