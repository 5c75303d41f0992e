"""Figures of small tables, computed by hand."""
from pathlib import Path

import pytest

from solver.domain.estimate import Risk
from tests.accuracy.rows import Table, read
from tests.accuracy.samples import Answers, answer, cells, write_csv
from tests.accuracy.scoring import Fit, score


def _table(tmp_path: Path, *rows: dict[str, str]) -> Table:
    return read(write_csv(tmp_path / "runs.csv", rows))


def test_step_times(tmp_path: Path) -> None:
    rows = _table(tmp_path, cells(id="a-1", group_id="g1", micro_batch="1", step_time_s="10"),           # 11: + 10 %
                  cells(id="a-2", group_id="g1", micro_batch="2", step_time_s="10"),                     # 8: - 20 %
                  cells(id="b-1", group_id="g2", micro_batch="4", step_time_s="20", gpu="T4-16GB"),      # 26: + 30 %
                  cells(id="b-2", group_id="", micro_batch="8", step_time_s="1", source="Other"),        # 1.02: + 2 %
                  cells(id="b-3", micro_batch="16", oom="1"), cells(id="b-4", micro_batch="32", step_time_s="5")).rows
    found = score(rows, Answers(mb1=answer(11.0), mb2=answer(8.0), mb4=answer(26.0), mb8=answer(1.02), mb16=answer(9.0, "over"), mb32=answer(None)))
    assert found.unpriced == ("b-4",) and found.rows == 5
    assert found.step_time is not None
    assert (found.step_time.rows, found.step_time.far) == (4, 1)
    assert found.step_time.mean == pytest.approx(0.62 / 4)
    assert found.step_time.median == pytest.approx(0.15)
    assert found.step_time.p90 == pytest.approx(0.2)
    assert found.step_time.bias == pytest.approx(0.22 / 4)
    assert found.groups == 3
    assert found.over_groups == pytest.approx((0.15 + 0.3 + 0.02) / 3)
    assert found.over_sources == pytest.approx((0.15 + 0.16) / 2)
    assert {name: s.rows for name, s in found.by_device.items()} == {"A100-SXM-80GB": 3, "T4-16GB": 1}
    assert found.by_source["b"].bias == pytest.approx(0.16)


def test_fits_or_not(tmp_path: Path) -> None:
    out: list[Risk] = ["over", "over", "safe", "risky"]
    ran: list[Risk] = ["safe", "safe", "safe", "risky", "over"]
    rows = _table(tmp_path, *(cells(id=f"a-{i}", micro_batch=str(i + 1), oom="1") for i in range(len(out))),
                  *(cells(id=f"a-{i}", micro_batch=str(len(out) + i + 1), step_time_s="1") for i in range(len(ran))),
                  cells(id="a-untold", micro_batch="1")).rows
    found = score(rows, Answers(**{f"mb{i}": answer(1.0, risk) for i, risk in enumerate([*out, *ran], 1)})).fit
    assert found == Fit(ran_safe=3, ran_risky=1, ran_over=1, oom_safe=1, oom_risky=1, oom_over=2)
    assert found.balanced_accuracy == pytest.approx((2 / 4 + 4 / 5) / 2)
    assert Fit(ran_safe=3).balanced_accuracy is None


def test_memory_is_of_the_fullest_stage_unless_the_counter_was_on_the_last(tmp_path: Path) -> None:
    kinds = {"1": "GiB max allocated", "2": "GiB reserved"}
    rows = _table(tmp_path, *(cells(id=f"{source}-{size}", micro_batch=size, mem_gb_per_gpu="20", mem_kind=kinds[size])
                              for source, size in (("a", "1"), ("mcf", "1"), ("a", "2"))),
                  cells(oom="1", mem_gb_per_gpu="1", mem_kind=kinds["1"])).rows
    found = score(rows, Answers(mb1=answer(1.0, stages_gib=(30.0, 15.0)), mb2=answer(1.0, stages_gib=(19.0, 10.0)))).memory
    assert {counter: spread.rows for counter, spread in found.items()} == {"allocated": 2, "other": 1}
    assert found["allocated"].bias == pytest.approx((0.5 - 0.25) / 2)
    assert found["other"].bias == pytest.approx(-0.05)


def _regret(tmp_path: Path, measured: list[str], predicted: list[float], over: tuple[int, ...] = (), extra: tuple[dict[str, str], ...] = ()) -> float:
    rows = _table(tmp_path, *(cells(id=f"a-{i}", micro_batch=str(2**i), step_time_s=s) for i, s in enumerate(measured)), *extra).rows
    answers = {f"mb{2**i}": answer(s, "over" if i in over else "safe") for i, s in enumerate(predicted)}
    found = score(rows, Answers(**answers)).regret
    assert found is not None and found.jobs == 1
    assert (found.exact, found.within) == (int(found.mean < 1e-9), int(found.mean <= 0.02))
    assert found.worst == found.mean
    return found.mean


def test_regret_is_what_the_pick_costs(tmp_path: Path) -> None:
    measured = ["10", "11", "12", "13"]
    assert _regret(tmp_path, measured, [5, 6, 7, 8]) == 0
    assert _regret(tmp_path, measured, [7, 6, 5, 8]) == pytest.approx(0.2)
    assert _regret(tmp_path, measured, [5, 5, 7, 8]) == pytest.approx(0.1), "a tie counts as its worst"
    assert _regret(tmp_path, measured, [5, 6, 7, 8], over=(0,)) == pytest.approx(0.1), "what is called over is not picked, but is the best measured"
    assert _regret(tmp_path, measured, [6, 5, 7, 8], over=(0, 1, 2, 3)) == pytest.approx(0.1), "all called over: all are in the pool"


def test_rows_that_ask_the_same_question_are_merged_to_their_median(tmp_path: Path) -> None:
    again = tuple(cells(id=f"a-again{s}", micro_batch="1", step_time_s=s) for s in ("30", "12"))          # with 10: median 12
    assert _regret(tmp_path, ["10", "11", "12", "13"], [5, 6, 7, 8], extra=again) == pytest.approx(12 / 11 - 1)


def test_fewer_than_four_layouts_are_no_choice(tmp_path: Path) -> None:
    rows = _table(tmp_path, *(cells(id=f"a-{i}", micro_batch=str(2 ** (i % 3)), step_time_s="1") for i in range(6))).rows
    assert score(rows, Answers(mb1=answer(1.0), mb2=answer(1.0), mb4=answer(1.0))).regret is None
