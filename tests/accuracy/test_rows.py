"""Files of measured runs are read as rows."""
import json
from pathlib import Path

import pytest

from solver.cost.estimate import estimate
from solver.domain.degrees import Strategy
from tests.accuracy.rows import GIB, measured_memory, measured_step_time_s, read
from tests.accuracy.samples import Answers, answer, cells, write_csv

BODY = {"model": {"preset": "llama-3.1-8b"}, "cluster": {"node_groups": [{"name": "a", "gpu": "H100-SXM5-80GB", "nodes": 1}]},
        "workload": {"kind": "training", "seq_len": 4096, "global_batch_size": 32}, "strategy": {"tp": 8}}


def test_rows_that_share_a_problem_hold_the_same_one(tmp_path: Path) -> None:
    rows = read(write_csv(tmp_path / "runs.csv", [cells(id="x-1"), cells(id="x-2", micro_batch="2"), cells(id="x-3", global_batch="128")])).rows
    assert rows[0].problem is rows[1].problem
    assert rows[0].problem is not rows[2].problem
    assert [row.layouts for row in rows] == [(Strategy(tp=2, pp=2, dp=4, sequence_parallel=True, micro_batch_size=size),) for size in (1, 2, 1)]


def test_an_unstated_recompute_mode_is_the_lightest_that_fits(tmp_path: Path) -> None:
    row, = read(write_csv(tmp_path / "runs.csv", [cells(recompute="")])).rows
    assert [layout.recompute for layout in row.layouts if isinstance(layout, Strategy)] == ["none", "selective", "partial", "full"]
    assert row.predicted(lambda _, layout: answer(row.layouts.index(layout), "risky" if layout is row.layouts[2] else "over")).step_time_s == 2
    assert row.predicted(lambda _, layout: answer(row.layouts.index(layout), "over")).step_time_s == 3


def test_rows_that_cannot_be_asked_are_named(tmp_path: Path) -> None:
    table = read(write_csv(tmp_path / "runs.csv", [cells(precision=""), cells(id="x-2", gpu="abacus"), cells(id="x-3", task="lora")]))
    assert table.rows == ()
    assert table.unasked == (("x-1", "precision is not stated"),)
    (name, why), = table.refused
    assert name == "x-2" and "abacus" in why


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("id,source\nx-1,me\n")
    with pytest.raises(ValueError, match="has no columns source_kind, model_name"):
        read(tmp_path / "runs.csv")


def test_step_time_is_as_printed_or_from_the_throughput() -> None:
    assert measured_step_time_s(cells(step_time_s="3.5", tokens_per_s_per_gpu="1")) == 3.5
    assert measured_step_time_s(cells(tokens_per_s_per_gpu="2048")) == pytest.approx(64 * 2048 / (2048 * 16))
    assert measured_step_time_s(cells(step_time_s="3.5", task="functional-test")) is None
    assert measured_step_time_s(cells()) is None


@pytest.mark.parametrize(("kind", "expected"), [
    ("GiB torch max allocated, max over ranks", (10.0, "allocated")), ("GB, device-level (nvidia-smi)", (10e9 / GIB, "other")),
    ("1e9 bytes, torch peak allocated, last rank only", (10e9 / GIB, "allocated")), ("GiB, allocated? not stated", (10.0, "other")),
])
def test_memory_counters_are_told_apart(kind: str, expected: tuple[float, str]) -> None:
    assert measured_memory(cells(mem_gb_per_gpu="10", mem_kind=kind)) == expected
    assert measured_memory(cells(mem_kind=kind))[0] is None


def test_json_lines_are_bodies_of_estimates_with_what_was_measured(tmp_path: Path) -> None:
    lines = [BODY | {"measured": {"step_time_s": 2.0, "peak_memory_gib": 30.0}, "id": "mine", "source": "us", "group": "8b"},
             BODY | {"measured": {"out_of_memory": True}}, BODY | {"measured": {}, "model": {"preset": "no-such-model"}}, BODY]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    table = read(path)
    first, second = table.rows
    assert (first.name, first.source, first.group, first.device, first.step_time_s, first.memory_gib, first.counter, first.out_of_memory) == (
        "mine", "us", "8b", "H100-SXM5-80GB", 2.0, 30.0, "allocated", False)
    assert (second.source, second.out_of_memory, second.job) == ("runs", True, None)
    assert first.problem is second.problem
    assert [name for name, _ in table.refused] == ["line 3", "line 4"]
    assert first.predicted().step_time_s == estimate(first.problem, Strategy(tp=8)).step_time_s
    assert Answers(mb1=answer(7.0))(first.problem, first.layouts[0]).step_time_s == 7.0
