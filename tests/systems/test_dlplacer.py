"""DLPlacer (Pal et al. 2019, arXiv 1907.13257): operators of a graph on devices, least makespan; and when that beats more data parallelism."""
import itertools
import json
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from solver.domain.graph import PlacementRequest
from solver.search.placing.accuracy import hybrid_gain
from solver.search.placing.place import Placement, place_graph

_REQUEST = TypeAdapter(PlacementRequest)


def placed(body: dict[str, Any]) -> Placement:
    """The answer of POST /v1/placements."""
    return place_graph(_REQUEST.validate_json(json.dumps(body)))


def fork_join(branches: list[float], size_bytes: float) -> dict[str, Any]:
    names = [f"b{i}" for i in range(len(branches))]
    operators = [{"name": "fork", "seconds": 1.0}, *({"name": n, "seconds": s} for n, s in zip(names, branches, strict=True)),
                 {"name": "join", "seconds": 1.0}]
    tensors = [{"source": "fork", "target": n, "size_bytes": size_bytes} for n in names]
    tensors += [{"source": n, "target": "join", "size_bytes": size_bytes} for n in names]
    return {"operators": operators, "tensors": tensors, "devices": [{"name": "x"}, {"name": "y"}],
            "links": [{"between": ["x", "y"], "bandwidth_gb_s": 1.0}]}


def by_force(body: dict[str, Any]) -> float:
    """Every placement, every order of operators by device and of tensors by link: list scheduling over all topological orders.

    Some active schedule is optimal, and every active schedule is what taking operators and transfers in order of start gives, each as early as its
    device or link and its inputs allow.
    """
    at = {o["name"]: i for i, o in enumerate(body["operators"])}
    n, devices = len(at), body["devices"]
    links = {frozenset(link["between"]): link for link in body["links"]}
    best = np.inf
    for where in itertools.product(range(len(devices)), repeat=n):
        tasks: list[tuple[Any, float, list[int]]] = [((where[i],), o["seconds"] / devices[where[i]].get("speed", 1.0), []) for i, o in
                                                     enumerate(body["operators"])]
        legal = True
        for t in body["tensors"]:
            a, b = at[t["source"]], at[t["target"]]
            if where[a] == where[b]:
                tasks[b][2].append(a)
                continue
            link = links.get(frozenset((devices[where[a]]["name"], devices[where[b]]["name"])))
            if link is None:
                legal = False
                break
            tasks.append(((where[a], where[b]), link.get("latency_us", 0.0) * 1e-6 + t["size_bytes"] / link["bandwidth_gb_s"] / 1e9, [a]))
            tasks[b][2].append(len(tasks) - 1)
        if legal:
            best = min(best, _least(tasks, best))
    return float(best)


def _least(tasks: list[tuple[Any, float, list[int]]], best: float) -> float:
    def go(ends: tuple[float | None, ...], free: dict[Any, float], last: float) -> None:
        nonlocal best
        if last >= best:
            return
        left = [k for k, e in enumerate(ends) if e is None]
        if not left:
            best = last
            return
        for k in left:
            resource, seconds, needs = tasks[k]
            if any(ends[j] is None for j in needs):
                continue
            end = max([free.get(resource, 0.0), *(ends[j] or 0.0 for j in needs)]) + seconds
            go((*ends[:k], end, *ends[k + 1:]), free | {resource: end}, max(last, end))

    go((None,) * len(tasks), {}, 0.0)
    return best


@pytest.mark.parametrize(("branches", "size_bytes", "expected"), [([3.0, 3.0], 0.0, 5.0), ([3.0, 3.0], 0.5e9, 5.5), ([3.0, 3.0], 5e9, 8.0),
                                                                 ([1.0, 2.0, 3.0], 0.25e9, 5.25)])
def test_fork_join_on_two_devices(branches: list[float], size_bytes: float, expected: float) -> None:
    body = fork_join(branches, size_bytes)
    found = placed(body)
    assert found.outcome == "optimal" and found.makespan_s == pytest.approx(expected, rel=1e-5) == pytest.approx(by_force(body))
    assert found.single_device_s == pytest.approx(2 + sum(branches)) and found.speed_up == pytest.approx((2 + sum(branches)) / expected, rel=1e-5)


def random_graph(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    operators = [{"name": f"o{i}", "seconds": float(rng.integers(1, 8))} for i in range(n)]
    tensors = [{"source": f"o{i}", "target": f"o{j}", "size_bytes": float(rng.integers(0, 5)) * 1e9} for i in range(n) for j in range(i + 1, n)
               if rng.random() < 0.4][:5]
    devices = [{"name": name, "speed": float(rng.choice([1.0, 2.0]))} for name in ("x", "y", "z")[:int(rng.integers(1, 4 if n < 5 else 3))]]
    links = [{"between": [a["name"], b["name"]], "bandwidth_gb_s": float(rng.choice([0.5, 1.0, 4.0])), "latency_us": float(rng.choice([0.0, 3e5]))}
             for a, b in itertools.combinations(devices, 2) if rng.random() < 0.85]
    return {"operators": operators, "tensors": tensors, "devices": devices, "links": links}


@pytest.mark.parametrize("seed", range(110))
def test_random_graphs_equal_brute_force(seed: int) -> None:
    body = random_graph(seed)
    found = placed(body)
    assert found.outcome == "optimal" and found.bound_s is not None and found.makespan_s is not None
    assert found.makespan_s == pytest.approx(by_force(body), rel=1e-5) and found.bound_s <= found.makespan_s * (1 + 1e-12)
    for a, b in itertools.combinations(found.operators, 2):
        assert a.device != b.device or a.end_s <= b.start_s or b.end_s <= a.start_s
    for c, d in itertools.combinations(found.transfers, 2):
        assert c.between != d.between or c.end_s <= d.start_s or d.end_s <= c.start_s


def test_memory_and_pins_bind() -> None:
    body = fork_join([3.0, 3.0], 5e9)
    for o in body["operators"]:
        o["memory_bytes"] = 10.0
    body["devices"][0]["memory_bytes"] = body["devices"][1]["memory_bytes"] = 25.0
    found = placed(body)
    assert found.outcome == "optimal" and found.single_device_s is None and (found.makespan_s or 0.0) > 8.0
    assert {o.device for o in found.operators} == {"x", "y"}
    body["devices"][0]["memory_bytes"] = 5.0
    assert placed(body).outcome == "infeasible"
    body = fork_join([3.0, 3.0], 0.0)
    body["operators"][1]["device"] = "y"
    assert next(o for o in placed(body).operators if o.name == "b0").device == "y"


def test_circles_and_strangers_are_refused() -> None:
    body = fork_join([1.0], 0.0)
    with pytest.raises(ValueError, match="circle"):
        placed(body | {"tensors": [*body["tensors"], {"source": "join", "target": "fork"}]})
    with pytest.raises(ValueError, match="'nobody' is not there"):
        placed(body | {"tensors": [{"source": "nobody", "target": "join"}]})


def test_when_model_parallelism_beats_more_data_parallelism() -> None:
    """SU of two = 1.22: rejected with flat epochs, accepted where twice the batch needs twice the epochs, then 22 % faster."""
    assert hybrid_gain(1.22, 2, (1.0, 1.0), (1.0, 1.0)) == pytest.approx(0.61)
    assert hybrid_gain(1.22, 2, (1.0, 1.0), (1.0, 2.0)) == pytest.approx(1.22)
    assert hybrid_gain(1.22, 2, (0.9, 0.7), (1.0, 1.0)) == pytest.approx(1.22 * 0.9 / (2 * 0.7))
