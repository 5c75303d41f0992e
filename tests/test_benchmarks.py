"""The measuring program measures what it says: every example, layouts that are legal and differ."""
from pathlib import Path

from benchmarks.examples import examples
from benchmarks.pricing import CASES, TABLE, cpu_s, legal_layouts, others
from solver.cost.estimate import estimate
from solver.cost.table import price_table

MEMORY = {"memory.over"}


def test_every_example_is_searched() -> None:
    assert {e.name for e in examples()} == {p.stem for p in (Path(__file__).parents[1] / "examples").glob("*.json")}


def test_layouts_that_are_timed_obey_every_rule_but_the_memory() -> None:
    for case in CASES:
        found = estimate(case.problem(), case.strategy)
        assert {reason.code for reason in found.reasons} <= MEMORY, case.name


def test_other_layouts_differ() -> None:
    found = list(others(CASES[0].problem(), CASES[0].strategy))
    assert CASES[0].strategy not in found and len(set(found)) == len(found) == 31


def test_the_table_is_of_different_legal_layouts_with_the_numbers_of_estimates() -> None:
    of = TABLE.problem()
    layouts = legal_layouts(of, 200)
    assert len(set(layouts)) == 200 and any(s.virtual_stages > 1 for s in layouts)
    table = price_table(of, layouts)
    for row, s in enumerate(layouts):
        alone = estimate(of, s)
        assert {reason.code for reason in alone.reasons} <= MEMORY
        assert alone.step_time_s == table.step_time_s[row]


def test_calls_are_timed() -> None:
    calls: list[int] = []
    assert cpu_s(lambda: calls.append(1)) >= 0.0 and calls == [1]
