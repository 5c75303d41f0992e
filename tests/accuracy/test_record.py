"""Figures are kept, and one that got worse is found."""
from pathlib import Path

import pytest

from tests.accuracy.__main__ import main
from tests.accuracy.record import FIGURES, Tree, digest, flat, recorded, tree_of, worse, write
from tests.accuracy.report import REPORT, left_out, render, unexplained
from tests.accuracy.requests import DATA
from tests.accuracy.rows import read
from tests.accuracy.samples import Answers, answer, cells, write_csv
from tests.accuracy.scoring import score


def _tree(tmp_path: Path, first_s: float, second_s: float) -> Tree:
    """Figures of two runs of 10 s, by their predictions."""
    path = write_csv(tmp_path / "runs.csv", [cells(id="a-1", micro_batch="1", step_time_s="10"), cells(id="b-1", micro_batch="2", step_time_s="10")])
    table = read(path)
    return tree_of(path, "1", table, score(table.rows, Answers(mb1=answer(first_s), mb2=answer(second_s))), None)


def test_figures_read_back_as_written(tmp_path: Path) -> None:
    tree = _tree(tmp_path, 11.0, 8.7)
    write({"runs": tree, "else": tree}, tmp_path / "figures.toml")
    found = recorded(tmp_path / "figures.toml")
    assert list(found) == ["else", "runs"]
    assert dict(flat(found["runs"])) == pytest.approx(dict(flat(tree)), rel=1e-9)
    assert found["runs"]["digest"] == digest(tmp_path / "runs.csv")
    assert worse(found["runs"], tree) == []


def test_a_worse_figure_is_found_and_a_better_one_is_not(tmp_path: Path) -> None:
    before = _tree(tmp_path, 11.0, 11.0)
    assert worse(before, _tree(tmp_path, 11.0, 11.0)) == []
    assert worse(before, _tree(tmp_path, 10.5, 10.0)) == []
    assert worse(before, _tree(tmp_path, 11.0 + 1e-7, 11.0)) == []
    assert [c.name for c in worse(before, _tree(tmp_path, 10.0, 11.5))] == ["source.b.mean"]
    assert {c.name for c in worse(before, _tree(tmp_path, 11.0 + 1e-4, 11.0))} == {
        "step_time.mean", "step_time.over_groups", "step_time.over_sources", "source.a.mean", "device.A100-SXM-80GB.mean"}


def test_more_is_better_for_some_and_what_is_gone_is_worse() -> None:
    before = {"fit": {"balanced_accuracy": 0.95, "oom_called_safe": 0.0}, "regret": {"within_share": 0.7}, "refused": 0, "source": {"a": {"rows": 5}}}
    same = {"fit": {"balanced_accuracy": 0.96, "oom_called_safe": 0.0}, "regret": {"within_share": 0.7}, "refused": 0, "source": {"a": {"rows": 6}}}
    assert worse(before, same) == []
    now = {"fit": {"balanced_accuracy": 0.94, "oom_called_safe": 0.01}, "regret": {"within_share": 0.6}, "refused": 1}
    assert [(c.name, c.now) for c in worse(before, now)] == [
        ("fit.balanced_accuracy", 0.94), ("fit.oom_called_safe", 0.01), ("regret.within_share", 0.6), ("refused", 1.0), ("source.a.rows", None)]


def test_the_program_fails_on_a_worse_figure_until_it_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_csv(tmp_path / "runs.csv", [cells(step_time_s="2"), cells(id="x-2", micro_batch="2", step_time_s="2.5")])
    figures, page = tmp_path / "figures.toml", tmp_path / "page.md"
    given = [str(path), "--figures", str(figures), "--report", str(page)]
    assert main(given) == 0 and "nothing to compare with" in capsys.readouterr().err
    assert main([*given, "--record"]) == 0
    assert "## runs" in page.read_text()
    assert main(given) == 0 and "no figure is worse" in capsys.readouterr().err

    mean = recorded(figures)["runs"]["step_time"]["mean"]
    figures.write_text(figures.read_text().replace(f"mean = {mean:#.10g}", f"mean = {mean * 0.99:#.10g}"))
    assert main(given) == 1
    assert "  step_time.mean: recorded" in capsys.readouterr().err
    assert main([*given, "--record"]) == 0 and main(given) == 0

    write_csv(path, [cells(step_time_s="2")])
    assert main(given) == 0 and "not the file whose figures" in capsys.readouterr().err
    write_csv(path, [cells(step_time_s="2", gpu="abacus")])
    assert main(given) == 1 and "refused x-1" in capsys.readouterr().err


def test_committed_figures_are_of_the_committed_runs_and_the_page_shows_them() -> None:
    trees = recorded(FIGURES)
    assert trees["train"]["digest"] == digest(DATA / "train.csv")
    assert REPORT.read_text() == render(trees, left_out()), "make accuracy RECORD=1 writes both"
    assert unexplained(trees) == [], "a source with many runs far off needs its cause in data/report.toml"
