"""Posted profiles: names as the cluster has them, order of rows without meaning, rows that could never be used refused with their pointer."""
from dataclasses import replace
from typing import Any

import pytest

from solver.domain.cluster import ClusterSpec, InlineDevice, NodeGroupSpec
from solver.domain.problem import Problem
from solver.domain.profiles import CollectiveProfile, LayerProfile, Profiles
from solver.domain.request import ModelSpec
from solver.domain.workload import TrainingWorkload
from solver.errors import InputError
from solver.importers.request import problem_of
from tests.solver.cost.problems import SMALL

CLUSTER = ClusterSpec(node_groups=(NodeGroupSpec(name="a", nodes=2, gpu="A100-SXM4-40GB"),
                                   NodeGroupSpec(name="mine", nodes=1, gpu=InlineDevice(name="our card", based_on="A100-SXM4-80GB"))))
ROW: dict[str, Any] = {"gpu": "A100-SXM4-40GB", "tp": 1, "micro_batch_size": 1, "layer": "block", "forward_s": 1e-3, "backward_s": 2e-3}
REDUCE: dict[str, Any] = {"op": "all_reduce", "groups": ("a",), "ranks": 8, "bytes": 1e6, "seconds": 1e-4}


def asked(*layers: dict[str, Any], collectives: tuple[dict[str, Any], ...] = ()) -> Problem:
    return problem_of(ModelSpec(architecture=SMALL), CLUSTER, TrainingWorkload(seq_len=512, global_batch_size=8), profiles=Profiles(
        layers=tuple(LayerProfile(**ROW | change) for change in layers),
        collectives=tuple(CollectiveProfile(**REDUCE | change) for change in collectives)))


def gpus(of: Problem) -> list[str]:
    assert of.profiles is not None
    return [row.gpu for row in of.profiles.layers]


@pytest.mark.parametrize(("gpu", "means"), [
    ("a100-sxm4-40gb", "A100-SXM4-40GB"), ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"), ("Our-Card", "our card"), ("H100-SXM5-80GB", "H100-SXM5-80GB"),
    ("A100", "A100-SXM4-40GB"),                            # of the family, the member in the cluster
])
def test_names_are_those_of_the_clusters_devices(gpu, means):
    assert gpus(asked({"gpu": gpu})) == [means]


def test_the_order_of_rows_changes_no_fingerprint():
    rows = ({}, {"tp": 2}, {"layer": 3}, {"micro_batch_size": 4})
    one, other = asked(*rows, collectives=({}, {"bytes": 2e6})), asked(*reversed(rows), collectives=({"bytes": 2e6}, {}))
    assert one.fingerprint() == other.fingerprint() != asked({}).fingerprint() != replace(asked({}), profiles=None).fingerprint()


@pytest.mark.parametrize(("layers", "collectives", "pointer", "legal"), [
    (({}, {"gpu": "H1000"}), (), "/profiles/layers/1/gpu", "did you mean"),
    (({"layer": 4},), (), "/profiles/layers/0/layer", "0 to 3"),
    (({"layer": "blocks"},), (), "/profiles/layers/0/layer", "block, embedding, head, full_attention"),
    (({}, {"gpu": "NVIDIA a100-sxm4-40gb", "forward_s": 2e-3}), (), "/profiles/layers/1", "one row each"),
    ((), ({}, {"groups": ("a", "b")}), "/profiles/collectives/1/groups/1", "a, mine"),
    ((), ({"ranks": 17},), "/profiles/collectives/0/ranks", "2 to 16"),
    ((), ({"op": "send_recv"},), "/profiles/collectives/0/ranks", "2"),
    ((), ({}, {"seconds": 2e-4}), "/profiles/collectives/1", "one row each"),
])
def test_rows_that_could_not_be_used_are_refused(layers, collectives, pointer, legal):
    with pytest.raises(InputError) as refusal:
        asked(*layers, collectives=collectives)
    fault, = refusal.value.faults
    assert fault.pointer == pointer and legal in (fault.legal or "")
