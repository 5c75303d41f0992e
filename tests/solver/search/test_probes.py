"""Probes made together are those of every family alone."""
from dataclasses import replace

import numpy as np
import pytest

from solver.cost.setting import setting
from solver.cost.uncovered import bounded
from solver.cost.units import layer_costs
from solver.domain.options import Constraints
from solver.domain.problem import Problem
from solver.domain.profiles import LayerProfile, Profiles
from solver.search.bounds import SLACK
from solver.search.explore import table_factory
from solver.search.probes import Probe, probe, probe_of, probes_of
from solver.search.space import Context, Space
from tests.solver.cost.problems import SMALL, node_group, problem
from tests.solver.cost.test_bulk import MODELS


def asked(model: str) -> Problem:
    return problem(MODELS[model], (node_group("a", "H100-SXM5-80GB"), node_group("b", nodes=3, gpus_per_node=6)), seq_len=4096, global_batch_size=24)


def measured() -> Problem:
    rows = tuple(LayerProfile(gpu="A100-SXM4-80GB", tp=tp, micro_batch_size=b, layer="block", forward_s=0.002 * b**1.2 / tp,
                              backward_s=0.005 * b / tp) for tp in (1, 2) for b in (2, 4))
    return replace(problem(SMALL, global_batch_size=8), profiles=Profiles(layers=rows))


def assert_is_of(found: Probe, of: Problem, space: Space, context: Context, size: int) -> None:
    modes, seen = space.recompute_modes(), np.zeros(found.tau.shape, dtype=bool)
    for kind in space.probes(context, size, modes):
        at = space.group_index[kind.spec.groups[0]], found.degrees.index(kind.spec.tp), modes.index(kind.spec.recompute)
        seen[at] = bounded(setting(of), kind.spec)
        if not seen[at]:
            continue
        unit, least = layer_costs(of, kind.spec), layer_costs(of, kind.spec, least=True)
        parts = list(unit.layers.values())
        for value, expected in (
                (found.forward_s[:, *at], [p.forward_s for p in parts]), (found.backward_s[:, *at], [p.backward_s for p in parts]),
                (found.class_s[:, *at], [p.forward_s + p.backward_s for p in least.layers.values()]),
                (found.activation[at], min(p.activation_bytes for p in parts)), (found.weights[at], min(p.weights_bytes for p in parts)),
                (found.gradients[at], min(p.gradients_bytes for p in parts)),
                (found.room[at], (unit.capacity_bytes - unit.buffers_bytes) * (1 + SLACK))):
            np.testing.assert_allclose(value, expected, rtol=1e-12, atol=0.0)
    assert (np.isfinite(found.tau) == seen).all()
    assert found.class_layers.sum() == of.model.num_layers


@pytest.mark.parametrize("of", [*(asked(name) for name in ("dense", "experts", "encoder", "windows")), measured()], ids=lambda of: of.model.name)
def test_probes_made_together_are_those_of_every_family(of: Problem) -> None:
    space, factory = Space(of, Constraints()), table_factory(of, Constraints())
    families = [(c, b) for c in space.contexts()[::9] for b in (2, 4) if space.degrees(c)]
    together = probes_of(space, factory, families, space.recompute_modes())
    assert len(together) == len(families) > 1 and any(np.isfinite(p.tau).any() for p in together)
    for (context, size), found in zip(families, together, strict=True):
        assert_is_of(found, of, space, context, size)
        alone = probe(space, factory, context, size, space.recompute_modes())
        assert alone.degrees == found.degrees and (alone.fit == found.fit).all()


@pytest.mark.parametrize("fastest", [True, False])
def test_a_probe_is_the_same_whatever_was_asked_before(fastest: bool) -> None:
    of = asked("dense")
    space, factory = Space(of, Constraints()), table_factory(of, Constraints())
    modes = space.recompute_modes()[:1] if fastest else space.recompute_modes()
    for context in space.contexts()[:3]:
        for size in space.micro_batch_sizes()[::-1]:
            remembered = probe_of(space, factory, context, size, fastest=fastest)
            new = probe(space, table_factory(of, Constraints()), context, size, modes)
            np.testing.assert_allclose(remembered.class_s, new.class_s, rtol=1e-12)
            np.testing.assert_allclose(remembered.room, new.room, rtol=1e-12)
            assert probe_of(space, factory, context, size, fastest=fastest) is remembered


def test_a_context_without_degrees_has_an_empty_probe() -> None:
    of = asked("dense")
    space, factory = Space(of, Constraints()), table_factory(of, Constraints())
    none = Context(cp=1, ulysses=1, ep=1, etp=3, sequence_parallel=True)
    assert space.degrees(none) == () and probe(space, factory, none, 2, space.recompute_modes()).tau.size == 0
