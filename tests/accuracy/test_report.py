"""The page says what was recorded."""
from pathlib import Path

from solver.domain.calibration import Calibration
from tests.accuracy.calibrating import calibrated
from tests.accuracy.record import Tree, recorded, tree_of, write
from tests.accuracy.report import needing_cause, render, terminal, unexplained
from tests.accuracy.rows import read
from tests.accuracy.samples import Answers, answer, cells, write_csv
from tests.accuracy.scoring import score

HALF = Calibration(set_name="s", version="1", coefficients=(), expected_error=0.1, runs=2)


def _tree(tmp_path: Path, name: str, rows: int) -> Tree:
    """`rows` runs of 10 s of source x, predicted as 13 s and after calibration as 11 s, and one of source y of 10 s."""
    path = write_csv(tmp_path / name, [*(cells(id=f"x-{i}", step_time_s="10") for i in range(rows)),
                                       cells(id="y-1", micro_batch="2", step_time_s="10", source="Other", gpu="T4-16GB")])
    table = read(path)
    predict = Answers(mb1=answer(13.0), mb2=answer(10.0))
    figures = score(table.rows, predict)
    after = calibrated(figures.scored, 2, lambda name, seen: HALF, Answers(mb1=answer(11.0)))
    write({path.stem: tree_of(path, "1", table, figures, after)}, tmp_path / "figures.toml")
    tree: Tree = recorded(tmp_path / "figures.toml")[path.stem]
    return tree


def test_every_table_has_its_lines(tmp_path: Path) -> None:
    unfitted = {"runs": "runs", "over_groups": 0.2, "over_sources": 0.25, "source": {"x": 0.4}}
    page = render({"runs": _tree(tmp_path, "runs.csv", 11)}, unfitted).splitlines()
    assert "| figure | runs |" in page
    assert "| step time, macro mean over groups | 27.5 % of 1 |" in page
    assert "| step time, macro mean over sources | 15.0 % of 2 |" in page
    assert "| left out of the fit, macro mean over groups | 20.0 % |" in page
    assert "| before calibration, step time, macro mean over sources | 30.0 % of 1 |" in page
    assert "| after calibration, step time, macro mean over sources | 10.0 % of 1 |" in page
    assert "| x | 11 | 30.0 % | 30.0 % | 30.0 % | +30.0 % | 11 | 40.0 % | 30.0 %, 10.0 % |" in page
    assert "| y | 1 | 0.0 % | 0.0 % | 0.0 % | +0.0 % | 0 |  |  |" in page
    assert "| T4-16GB | 1 | 0.0 % | 0.0 % | 0.0 % | +0.0 % | 0 |" in page
    assert any("2 runs of each cluster" in line for line in page)


def test_figures_left_out_are_of_the_file_that_the_fit_used(tmp_path: Path) -> None:
    page = render({"runs": _tree(tmp_path, "runs.csv", 11)}, {"runs": "others", "over_groups": 0.2, "over_sources": 0.2, "source": {}})
    assert "left out of the fit, macro" not in page


def test_a_second_file_lists_only_what_differs(tmp_path: Path) -> None:
    page = render({"runs": _tree(tmp_path, "runs.csv", 11), "fewer": _tree(tmp_path, "fewer.csv", 8)}, {})
    assert "| figure | runs | fewer |" in page
    assert page.count("| y | 1 |") == page.count("| T4-16GB |") == 1
    assert page.index("| x | 11 |") < page.index("as above") < page.index("| x | 8 |")


def test_ten_runs_far_off_need_a_cause(tmp_path: Path) -> None:
    trees = {"runs": _tree(tmp_path, "runs.csv", 10)}
    assert needing_cause(trees) == unexplained(trees) == ["x"]
    assert "- **x**: no cause is known" in render(trees, {})
    few = {"runs": _tree(tmp_path, "runs.csv", 9)}
    assert needing_cause(few) == []
    assert "There is none." in render(few, {})


def test_the_terminal_shows_the_same(tmp_path: Path) -> None:
    text = "\n".join(terminal("runs.csv", _tree(tmp_path, "runs.csv", 11), {}))
    assert "source x" in text and "30.0 %" in text
