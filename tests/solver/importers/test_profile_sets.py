"""Sets of measurements: checked by themselves, and turned into the profiles of a problem that they hold for."""
from dataclasses import replace
from typing import Any

import pytest

from solver.domain.cluster import ClusterSpec, NodeGroupSpec
from solver.domain.operators import AttentionProfile, GemmProfile, MemoryProfile
from solver.domain.problem import Problem
from solver.domain.profile_set import DeviceCollective, LayersOf, ProfileSet
from solver.domain.profiles import LayerProfile, Profiles
from solver.domain.request import ModelSpec
from solver.domain.workload import TrainingWorkload
from solver.errors import InputError
from solver.importers.profile_sets import profile_set_of
from solver.importers.request import problem_of
from tests.solver.cost.problems import SMALL

A40, A80 = "A100-SXM4-40GB", "A100-SXM4-80GB"
CLUSTER = ClusterSpec(node_groups=(NodeGroupSpec(name="a", nodes=2, gpus_per_node=8, gpu=A40),
                                   NodeGroupSpec(name="b", nodes=4, gpus_per_node=4, gpu=A40), NodeGroupSpec(name="c", nodes=1, gpu=A80)))
OF = LayersOf(architecture=SMALL, seq_len=512)


def layer(**changes: Any) -> LayerProfile:
    return LayerProfile(**{"gpu": A40, "tp": 1, "micro_batch_size": 1, "layer": "block", "forward_s": 1e-3, "backward_s": 2e-3, **changes})


def gemm(**changes: Any) -> GemmProfile:
    return GemmProfile(**{"gpu": A40, "precision": "bf16", "m": 512, "n": 512, "k": 512, "seconds": 1e-4, **changes})


def collective(**changes: Any) -> DeviceCollective:
    return DeviceCollective(**{"gpu": A40, "op": "all_reduce", "ranks": 8, "ranks_per_node": 8, "bytes": 1e6, "seconds": 1e-4, **changes})


def asked(kept: ProfileSet, inline: Profiles | None = None, seq_len: int = 512) -> Problem:
    workload = TrainingWorkload(seq_len=seq_len, global_batch_size=8)
    return problem_of(ModelSpec(architecture=SMALL), CLUSTER, workload, profiles=inline, profile_set=kept)


def used(kept: ProfileSet, inline: Profiles | None = None) -> Profiles:
    of = asked(kept, inline)
    assert of.profiles is not None
    return of.profiles


def test_a_collective_holds_for_groups_whose_nodes_it_fills_alike():
    rows = collective(), collective(ranks=16), collective(ranks=8, ranks_per_node=4), collective(ranks=2, ranks_per_node=2)
    found = used(ProfileSet(collectives=rows))
    assert [(row.groups, row.ranks) for row in found.collectives] == [(("a",), 16), (("a",), 2), (("a",), 8), (("b",), 2), (("b",), 8)]


def test_rows_that_the_request_brings_along_come_first():
    found = used(ProfileSet(gemms=(gemm(), gemm(m=1024))), Profiles(gemms=(gemm(seconds=7e-4),)))
    assert {row.m: row.seconds for row in found.gemms} == {512: 7e-4, 1024: 1e-4}


def test_extrapolation_is_the_requests_to_allow():
    kept = ProfileSet(layers=(layer(),), layers_of=OF)
    assert used(kept, Profiles(extrapolate=True)).extrapolate and not used(kept).extrapolate


def test_names_and_order_change_no_digest():
    rows = gemm(), gemm(m=1024), gemm(gpu="NVIDIA a100-sxm4-40gb", k=2048)
    one, other = (profile_set_of(ProfileSet(gemms=of, source=text))[0] for of, text in ((rows, "here"), (rows[::-1], "there")))
    assert one.gemms == other.gemms and one.fingerprint() == other.fingerprint()
    assert one.fingerprint() != profile_set_of(ProfileSet(gemms=rows[:2]))[0].fingerprint()


@pytest.mark.parametrize(("kept", "pointer", "words"), [
    (ProfileSet(), "", "without rows"),
    (ProfileSet(gemms=(gemm(), gemm(gpu="H1000"))), "/gemms/1/gpu", "H1000"),
    (ProfileSet(gemms=(gemm(), gemm(seconds=1.0))), "/gemms/1", "stands twice"),
    (ProfileSet(memory=(MemoryProfile(gpu=A40, bytes=1e9, seconds=1e-3),) * 2), "/memory/1", "stands twice"),
    (ProfileSet(collectives=(collective(), collective(gpu="a100-sxm4-40gb"))), "/collectives/1", "stands twice"),
    (ProfileSet(layers=(layer(layer=4),), layers_of=OF), "/layers/0/layer", "4 layers"),
    (ProfileSet(layers=(layer(),), layers_of=LayersOf(preset="lama", seq_len=1)), "/layers_of/preset", "lama"),
    (ProfileSet(attention=(AttentionProfile(gpu="no", sequences=1, seq_len=1, heads=1, head_dim=1, forward_s=1.0, backward_s=1.0),)),
     "/attention/0/gpu", "no"),
])
def test_sets_that_could_not_be_used_are_refused(kept, pointer, words):
    with pytest.raises(InputError) as refusal:
        profile_set_of(kept)
    fault, = refusal.value.faults
    assert fault.pointer == pointer and words in fault.message and fault.legal


@pytest.mark.parametrize(("of", "seq_len", "words"), [
    (LayersOf(architecture=replace(SMALL, num_layers=5), seq_len=512), 512, "another model"), (OF, 1024, "seq_len 512"),
    (LayersOf(architecture=SMALL, seq_len=512, precision="fp16"), 512, "in fp16"),
])
def test_layers_hold_for_their_model_length_and_precision_alone(of, seq_len, words):
    with pytest.raises(InputError, match=words) as refusal:
        asked(ProfileSet(layers=(layer(),), layers_of=of), seq_len=seq_len)
    assert [f.pointer for f in refusal.value.faults] == ["/profile_set"]


def test_the_name_of_a_model_is_not_what_makes_it():
    assert used(ProfileSet(layers=(layer(),), layers_of=LayersOf(architecture=replace(SMALL, name="ours"), seq_len=512))).layers


def test_a_set_for_other_gpus_is_told():
    of = asked(ProfileSet(gemms=(gemm(gpu="T4"),)))
    assert [a.message for a in of.assumptions if a.pointer == "/profile_set"] == ["the set has no row for a GPU of this cluster"]


@pytest.mark.parametrize(("build", "pointer"), [
    (lambda: ProfileSet(layers=(layer(),)), "/layers_of"), (lambda: ProfileSet(gemms=(gemm(),), layers_of=OF), "/layers_of"),
    (lambda: collective(ranks=8, ranks_per_node=3), "/ranks_per_node"), (lambda: collective(op="send_recv"), "/ranks"),
    (lambda: LayersOf(seq_len=1), ""), (lambda: LayersOf(preset="x", architecture=SMALL, seq_len=1), ""),
])
def test_what_contradicts_itself_is_refused_at_birth(build, pointer):
    with pytest.raises(InputError) as refusal:
        build()
    assert refusal.value.faults[0].pointer == pointer
