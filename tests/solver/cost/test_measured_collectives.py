"""Collective profiles: exact at measured sizes, monotone between, beyond them flagged, and only for communicators that lie alike."""
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.cost.collectives import all_gather_s, all_reduce_s, all_reduce_slope, all_to_all_s, reduce_scatter_s, send_s
from solver.cost.communicators import boundary_link, data_paths, group_path
from solver.cost.measured_collectives import Sizes
from solver.cost.price import price
from solver.cost.setting import Setting, setting
from solver.cost.units import edge_seconds, layer_costs, unit_costs
from solver.domain.problem import Problem
from solver.domain.profiles import CollectiveProfile, Profiles
from tests.solver.cost.problems import layout, node_group, problem, problems, unit, units


def row(**changes: Any) -> CollectiveProfile:
    return CollectiveProfile(**{"op": "all_reduce", "groups": ("g",), "ranks": 8, "bytes": 1e8, "seconds": 2e-3, **changes})


def measured(*rows: CollectiveProfile, of: Problem | None = None) -> Problem:
    return replace(of or problem(), profiles=Profiles(collectives=rows))


def shared(*rows: CollectiveProfile) -> Setting:
    return setting(measured(*rows))


@pytest.mark.parametrize(("op", "timed"), [("all_reduce", all_reduce_s), ("all_gather", all_gather_s), ("reduce_scatter", reduce_scatter_s),
                                           ("all_to_all", all_to_all_s)])
def test_every_operation_takes_what_was_measured(op, timed):
    of = shared(row(op=op, bytes=1e6, seconds=3e-4), row(op=op, bytes=4e6, seconds=6e-4))
    path = group_path(of, "g", 8, 1)
    assert [timed(path, size) for size in (1e6, 4e6)] == [3e-4, 6e-4]
    assert timed(path, 2e6) == pytest.approx(4.2426e-4, rel=1e-4)           # half way in logarithms: the geometric mean


def test_sends_between_stages_take_what_was_measured():
    of = measured(row(op="send_recv", ranks=2, bytes=1.0, seconds=1.0), row(op="send_recv", ranks=2, bytes=1e12, seconds=1.0 + 1e-12))
    assert edge_seconds(of, unit(), unit(), True, 1) == pytest.approx(1.0)
    assert edge_seconds(of, unit(), unit(), False, 1) == edge_seconds(problem(), unit(), unit(), False, 1)      # two of a node lie on its links
    link = boundary_link(setting(of), "g", "g", True, 1)
    assert send_s(link, 1e12) == 1.0 + 1e-12


@pytest.mark.parametrize(("ranks", "stride", "measures"), [(8, 1, True), (4, 1, False), (8, 2, False), (8, 8, False)])
def test_a_measurement_stands_for_ranks_that_lie_alike(ranks, stride, measures):
    of = shared(row(seconds=1.0))
    assert (all_reduce_s(group_path(of, "g", ranks, stride), 1e8) == 1.0) == measures


def test_ranks_further_apart_on_the_same_links_lie_alike():
    of = shared(row(ranks=4, seconds=1.0))
    assert all_reduce_s(group_path(of, "g", 4, 2), 1e8) == 1.0


def test_a_communicator_across_node_groups_has_measurements_of_its_own():
    cluster = replace(problem().cluster, node_groups=(node_group("a"), node_group("b")))
    of = setting(measured(row(groups=("a", "b"), ranks=16, seconds=1.0), of=replace(problem(), cluster=cluster)))
    assert [all_reduce_s(path, 1e8) for path in data_paths(of, ("a", "b"), 16, 1)] == [1.0, 1.0]
    assert all_reduce_s(group_path(of, "a", 16, 1), 1e8) < 0.1


def test_gradient_traffic_follows_the_line_through_the_sizes_around_a_bucket():
    rows = [row(bytes=size, seconds=1e-4 + size * 1e-11 * by) for size, by in ((1e6, 50.0), (1e8, 2.0), (3e8, 1.0), (1e9, 7.0))]
    path = data_paths(shared(*rows), ("g",), 8, 1)[0]
    low, high = rows[1], rows[2]
    constant, slope = all_reduce_slope(path)
    assert [constant + slope * r.bytes for r in (low, high)] == pytest.approx([low.seconds, high.seconds], rel=1e-12)


def test_halves_are_taken_where_both_are_measured_and_faster():
    whole = row(seconds=4e-3)
    halves = [row(op=op, seconds=1e-3) for op in ("all_gather", "reduce_scatter")]
    slopes = [all_reduce_slope(data_paths(shared(*rows), ("g",), 8, 1)[0])[1] for rows in ((whole,), (whole, *halves), (halves[0], halves[1]))]
    assert slopes[0] > slopes[1] == slopes[2]


def test_zero_stage_1_is_never_slower_than_0_whatever_was_measured():
    of = measured(row(seconds=1e-3), row(op="all_gather", seconds=5e-3), row(op="reduce_scatter", seconds=5e-3))
    none, one = (unit_costs(of, unit(replicas=8, zero_stage=z)).sync[0] for z in (0, 1))
    assert one.constant_s <= none.constant_s and all(one.per_layer_s[c] <= s for c, s in none.per_layer_s.items())


# ---- interpolation

sizes_and_seconds = st.lists(st.tuples(st.integers(1, 40), st.floats(1e-6, 1.0)), min_size=1, max_size=5)


def curve(steps: list[tuple[int, float]]) -> Sizes:
    at, x = [], 0
    for step, _ in steps:
        x += step
        at.append(float(x))
    return Sizes(at=tuple(at), seconds=tuple(s for _, s in steps))


def formula(size: float) -> float:
    return 1.0 + size


@settings(max_examples=200)
@given(steps=sizes_and_seconds, size=st.floats(0.1, 300.0))
def test_seconds_between_two_sizes_lie_between_theirs_and_are_positive_beyond(steps, size):
    of = curve(steps)
    found = of.seconds_at(size, formula)
    assert found > 0.0
    assert [of.seconds_at(at, formula) for at in of.at] == list(of.seconds)
    neighbours = [s for at, s in zip(of.at, of.seconds, strict=True)]
    if of.span[0] <= size <= of.span[1]:
        i = next(j for j, at in enumerate(of.at) if at >= size)
        low, high = sorted((neighbours[max(0, i - 1)], neighbours[i]))
        assert low * (1 - 1e-9) <= found <= high * (1 + 1e-9)


@settings(max_examples=200)
@given(steps=sizes_and_seconds, small=st.floats(0.1, 100.0), by=st.floats(1.0, 8.0))
def test_floors_never_exceed_the_seconds_and_fall_per_byte(steps, small, by):
    of = curve(steps)
    low, large = of.as_floor().seconds_at(small, formula), of.as_floor().seconds_at(small * by, formula)
    assert low <= of.seconds_at(small, formula)
    assert large / (small * by) <= of.seconds_at(small, formula) / small * (1 + 1e-9)


@settings(max_examples=200)
@given(steps=sizes_and_seconds, size=st.floats(0.1, 300.0))
def test_lines_of_large_transfers_never_fall_nor_begin_below_zero(steps, size):
    constant, slope = curve(steps).line_at(size, (1.0, 1.0))
    assert constant >= 0.0 and slope > 0.0


@settings(max_examples=40)
@given(data=st.data(), given_problem=problems(), times=st.sampled_from([2, 3, 4]))
def test_bounds_of_larger_micro_batches_hold_for_smaller_ones_whatever_was_measured(data, given_problem, times):
    spec = data.draw(units(given_problem))
    rows = [row(op=op, ranks=ranks, bytes=size, seconds=data.draw(st.floats(1e-6, 1e-1)))
            for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all") for ranks in (2, 4, 8) for size in (1e3, 1e5, 1e7)
            if ranks <= given_problem.cluster.gpus]
    of = measured(*rows, of=given_problem)
    exact, large = unit_costs(of, spec), layer_costs(of, replace(spec, micro_batch_size=spec.micro_batch_size * times), least=True)
    for cls, part in exact.layers.items():
        bound = large.layers[cls]
        assert (bound.forward_s + bound.backward_s) / times <= (part.forward_s + part.backward_s) * (1 + 1e-9)


def test_a_message_that_was_measured_slow_per_byte_excludes_no_smaller_one():
    """Twice the micro-batch takes ten times as long to reduce; the bound of the larger must not."""
    size = 512 * 512 * 2.0                                 # b s h elements of one sequence, in 16 bit
    of = measured(*(row(ranks=2, bytes=size * b, seconds=s) for b, s in ((1, 0.01), (2, 0.1), (4, 1.0))))
    spec = unit(tp=2)
    exact = next(iter(unit_costs(of, spec).layers.values()))
    for times in (2, 4):
        bound = next(iter(layer_costs(of, replace(spec, micro_batch_size=times), least=True).layers.values()))
        slow = next(iter(unit_costs(of, replace(spec, micro_batch_size=times)).layers.values()))
        assert bound.forward_s / times <= exact.forward_s * (1 + 1e-9) < slow.forward_s / times


# ---- what the answer says


def test_messages_beyond_the_data_are_flagged_and_those_inside_are_not():
    wide = [row(ranks=2, bytes=size, seconds=size / 1e11) for size in (1.0, 1e12)]
    narrow = [row(ranks=2, bytes=size, seconds=size / 1e11) for size in (1e9, 1e12)]
    at = layout(stage={"tp": 2}, micro_batches=32)
    inside, outside = (price(measured(*rows), at).confidence for rows in (wide, narrow))
    assert inside.outside_data == () and inside.basis == "analytic"
    assert len(outside.outside_data) == 1 and "all_reduce over 2 ranks of g: messages of" in outside.outside_data[0]


def test_collectives_that_a_layout_does_not_use_are_not_told():
    assert price(measured(row(op="all_to_all", bytes=1.0)), layout(stage={"tp": 2}, micro_batches=32)).confidence.outside_data == ()


def test_sends_beyond_the_data_are_flagged():
    found = price(measured(row(op="send_recv", ranks=2, bytes=1e12)), layout(pp=2, micro_batches=32))
    assert any("send_recv over 2 ranks" in note for note in found.confidence.outside_data)
