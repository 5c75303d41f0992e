"""What the family bounds take from the cost model, attacked on random problems. The other properties stand in tests/solver/cost/test_units.py."""
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solver.cost.unit import UnitCosts
from solver.cost.units import unit_costs
from solver.domain.cluster import GroupLink
from tests.solver.cost.problems import node_group, problem, problems, unit, units

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def layer_s(costs: UnitCosts) -> list[float]:
    return [part.forward_s + part.backward_s for part in costs.layers.values()]


def never_more(left: list[float], right: list[float]) -> bool:
    return all(a <= b * (1.0 + 1e-12) for a, b in zip(left, right, strict=True))


@quick
@given(data=st.data(), given_problem=problems(), times=st.sampled_from([2, 3, 4, 5, 8]))
def test_a_multiple_of_a_micro_batch_takes_no_longer_per_sequence(data, given_problem, times):
    spec = data.draw(units(given_problem))
    small, large = unit_costs(given_problem, spec), unit_costs(given_problem, replace(spec, micro_batch_size=spec.micro_batch_size * times))
    assert never_more([s / times for s in layer_s(large)], layer_s(small))


@quick
@given(data=st.data(), given_problem=problems())
def test_higher_zero_stages_are_never_faster_before_the_drain_nor_larger_in_states(data, given_problem):
    spec = data.draw(units(given_problem))
    one, two, three = (unit_costs(given_problem, replace(spec, zero_stage=z)) for z in (1, 2, 3))
    assert never_more(layer_s(one), layer_s(two)) and never_more(layer_s(one), layer_s(three))
    for name in ("weights_bytes", "gradients_bytes", "optimizer_bytes"):
        sizes = [[getattr(p, name) for p in (*c.layers.values(), c.embedding, c.head)] for c in (one, two, three)]
        assert never_more(sizes[1], sizes[0]) and never_more(sizes[2], sizes[1])


@quick
@given(data=st.data(), given_problem=problems())
def test_less_recompute_is_never_slower(data, given_problem):
    """`none` bounds all modes, which the first look at a family counts on."""
    spec = data.draw(units(given_problem))
    found = [layer_s(unit_costs(given_problem, replace(spec, recompute=mode))) for mode in ("none", "partial", "selective", "full")]
    assert all(never_more(found[0], other) for other in found[1:])


@quick
@given(data=st.data(), given_problem=problems(), replicas=st.sampled_from([2, 4, 16]))
def test_replicas_change_no_time_before_the_drain(data, given_problem, replicas):
    spec = replace(data.draw(units(given_problem)), replicas=1, ep=1, zero_stage=1)
    one, many = unit_costs(given_problem, spec), unit_costs(given_problem, replace(spec, replicas=replicas))
    assert layer_s(one) == layer_s(many)
    assert [p.activation_bytes for p in one.layers.values()] == [p.activation_bytes for p in many.layers.values()]


@quick
@given(networks=st.lists(st.sampled_from([0.1, 3.0, 25.0]), min_size=2, max_size=2), link=st.sampled_from([None, 0.05, 1.0, 400.0]),
       replicas=st.sampled_from([2, 3, 4, 16]), shared=st.booleans(), gpus=st.sampled_from([1, 2, 8]))
def test_straddling_is_no_faster_than_its_fastest_member(networks, link, replicas, shared, gpus):
    """A stage across node groups pays at least what it does where all of it lies in the better of them, the gradient traffic included."""
    groups = tuple(node_group(name, nodes=16, gpus_per_node=gpus, network=speed) for name, speed in zip("ab", networks, strict=True))
    stated = {"total_bandwidth_gb_s": link} if shared else {"bandwidth_gb_s": link}
    of = problem(groups=groups, links=(GroupLink(between=("a", "b"), **stated),) if link else ())
    after = []
    for names in (("a",), ("b",), ("a", "b")):
        piece = unit_costs(of, unit(groups=names, replicas=replicas)).sync[0]
        after.append(sum(piece.per_layer_s.values()) + piece.constant_s)
    assert after[2] >= min(after[:2]) * (1 - 1e-12)


@quick
@given(data=st.data(), given_problem=problems(), rounds=st.sampled_from([1.0, 1.5, 12.0]))
def test_probes_take_expert_traffic_to_hide_as_much_as_it_ever_does(data, given_problem, rounds):
    spec = replace(data.draw(units(given_problem)), framework="megatron")
    probe, real = (unit_costs(given_problem, replace(spec, hiding_rounds=r)) for r in (2.0, rounds))
    assert never_more(layer_s(probe), layer_s(real))
