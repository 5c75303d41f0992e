"""Targets by name, and the plain export."""
import json
from dataclasses import asdict, replace

import pytest

from solver.errors import UnknownName
from solver.exporters.registry import EXPORTERS, export, reasons_against
from tests.solver.exporters.plans import problem, uneven


def test_an_unknown_target_names_those_there_are() -> None:
    of = problem()
    with pytest.raises(UnknownName, match="json, megatron"):
        reasons_against("slurm", of, uneven(of, [40]))


def test_plain_export_holds_plan_problem_and_ranks() -> None:
    of = problem()
    plan = uneven(of, [13, 12, 9, 6])
    (file,) = export("json", of, plan)
    body = json.loads(file.text)
    assert body["problem_sha256"] == of.fingerprint()
    assert body["plan"] == json.loads(json.dumps(asdict(plan)))
    assert body["hosts"] == ["fast-0", "fast-1", "slow-0", "slow-1"]
    assert [r["rank"] for r in body["ranks"]] == list(range(32))


def test_plain_export_takes_unequal_pipelines() -> None:
    of = problem()
    plan = uneven(of, [20, 20])
    other = replace(plan.pipelines[0], stages=(replace(plan.pipelines[0].stages[0], layers=((0, 39),), tp=4, dp=2,
                                                       devices=(replace(plan.pipelines[0].stages[0].devices[0], node_group="slow"),)),))
    (file,) = export("json", of, replace(plan, pipelines=(*plan.pipelines, other)))
    ranks = json.loads(file.text)["ranks"]
    assert [(r["pipeline"], r["stage"]) for r in ranks] == [(0, 0)] * 8 + [(1, 0)] * 8 + [(0, 1)] * 8
    assert {r["dp"] for r in ranks if r["pipeline"] == 1} == {1, 2}


def test_every_exporter_says_for_which_version_it_writes() -> None:
    assert all(e.title and e.written_for for e in EXPORTERS.values())
