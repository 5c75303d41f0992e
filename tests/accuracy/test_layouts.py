"""The verdict on layouts, on tables small enough to judge by hand."""
from pathlib import Path

import pytest

from tests.accuracy.layouts import judged, lines, main
from tests.accuracy.rows import read
from tests.accuracy.samples import Answers, answer, cells, write_csv
from tests.accuracy.scoring import score


def test_one_pick_per_group_and_runs_out_of_memory(tmp_path: Path) -> None:
    """Four layouts: the second is predicted fastest and measured 10 % behind. Three ran out of memory, one of them called safe."""
    ran = [cells(id=f"a-{i}", group_id="g", micro_batch=str(2**i), step_time_s=s) for i, s in enumerate(["10", "11", "12", "13"])]
    out = [cells(id=f"a-out{i}", group_id="g", micro_batch=str(2 ** (4 + i)), oom="1") for i in range(3)]
    few = [cells(id="a-few", group_id="h", micro_batch="1", step_time_s="1")]
    rows = read(write_csv(tmp_path / "runs.csv", [*ran, *out, *few])).rows
    said = Answers(mb1=answer(9.0), mb2=answer(8.0), mb4=answer(10.0), mb8=answer(11.0), mb16=answer(1.0, "safe"), mb32=answer(1.0, "over"),
                   mb64=answer(1.0, "over"))
    found = judged(score(rows, said).scored)
    assert [(p.group, p.layouts) for p in found.picks] == [("g", 4)]
    assert found.worst == pytest.approx(0.1) and found.near == 0.0 and found.called_safe == pytest.approx(1 / 3)
    assert not found.passed
    assert list(lines(found))[1:] == ["0 of 1 picks within 5%, the worst 10.0% behind", "1 of 3 runs out of memory called safe (33.3%)"]


def test_a_file_without_the_runs_is_no_pass(tmp_path: Path) -> None:
    assert main([str(write_csv(tmp_path / "runs.csv", [cells(id="a-1", step_time_s="1")]))]) == 1
