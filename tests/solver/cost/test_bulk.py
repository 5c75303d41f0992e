"""Units priced together cost what each costs alone."""
import random
from dataclasses import replace

import numpy as np
import pytest

from solver.cost.bulk import UnitTable, layers_of, units_of
from solver.cost.setting import setting
from solver.cost.unit import PartCost, UnitSpec
from solver.cost.units import layer_costs, unit_costs
from solver.domain.calibration import Calibration
from solver.domain.model import MLA, Architecture, MoE
from solver.domain.problem import Problem
from solver.domain.profiles import CollectiveProfile, LayerProfile, Profiles
from tests.solver.cost.problems import SMALL, node_group, problem, unit

EXPERTS = MoE(num_experts=64, top_k=6, expert_ffn_hidden_size=1408, num_shared_experts=2, first_dense_layers=1, num_groups=8, top_groups=3)
MODELS = {
    "dense": SMALL,
    "tied": replace(SMALL, tied_embeddings=True, gated_ffn=False),
    "experts": Architecture(num_layers=6, hidden_size=2048, ffn_hidden_size=5632, num_attention_heads=16, num_kv_heads=4, vocab_size=32_000,
                            tied_embeddings=True, moe=EXPERTS, mtp_layers=1),
    "latent": Architecture(num_layers=6, hidden_size=7168, ffn_hidden_size=18_432, num_attention_heads=128, vocab_size=129_280, mtp_layers=1,
                           moe=replace(EXPERTS, num_experts=256, top_k=8, num_shared_experts=1),
                           mla=MLA(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)),
    "encoder": Architecture(kind="encoder_decoder", num_layers=6, hidden_size=1024, ffn_hidden_size=4096, gated_ffn=False, num_attention_heads=16,
                            vocab_size=32_128, tied_embeddings=True),
    "windows": Architecture(num_layers=4, hidden_size=160, ffn_hidden_size=48, num_attention_heads=8, vocab_size=100, sliding_window=64,
                            layer_types=("full_attention", "sliding_attention") * 2),
}
WORKLOADS = {
    "bf16": (("H100-SXM5-80GB", "A100-SXM4-80GB", "V100-SXM2-32GB"), {"seq_len": 4096}),
    "fp8": (("H100-SXM5-80GB", "B200-SXM6-180GB", "L4"), {"precision": "fp8", "norm_kernel": "eager", "seq_len": 512}),
    "fp32": (("A100-SXM4-80GB", "T4", "MI300X-192GB"), {"precision": "fp32", "attention_kernel": "unfused", "seq_len": 8192}),
    "nvfp4": (("B200-SXM6-180GB", "H100-SXM5-80GB", "GB200-186GB"), {"precision": "nvfp4", "attention_kernel": "flash_2", "seq_len": 131_072,
                                                                  "gradient_precision": "bf16"}),
}
CALIBRATION = Calibration(set_name="ours", version="1", coefficients=(("network", 0.7), ("compute", 1.1), ("memory", 1.3)), expected_error=0.1,
                          runs=3, archs=(), experts=(False,), most_gpus=8)


def asked(model: str, workload: str) -> Problem:
    gpus, body = WORKLOADS[workload]
    groups = tuple(node_group(name, gpu, nodes=16, network=network) for name, gpu, network in zip("abc", gpus, (25.0, 100.0, 1.0), strict=True))
    return problem(MODELS[model], groups, **body)


def random_units(of: Problem, count: int, frameworks: tuple[str | None, ...] = (None, "megatron", "fsdp", "deepspeed")) -> list[UnitSpec]:
    """Any units that the dimensions allow, alone or over several node groups."""
    model, draw, found = of.model, random.Random(count), []
    names = [g.name for g in of.cluster.node_groups]
    experts = model.moe.num_experts if model.moe else 1
    for _ in range(count):
        tp = draw.choice([t for t in range(1, 65) if model.num_attention_heads % t == 0])
        cp = draw.choice([c for c in (1, 1, 2, 4, 8) if of.workload.seq_len % (2 * c) == 0])
        found.append(unit(
            groups=tuple(sorted(draw.sample(names, draw.choice([1, 1, 2, 3])))) if len(names) > 2 else (names[0],), tp=tp, cp=cp,
            ulysses=draw.choice([u for u in (1, 2, 4) if cp % u == 0 and model.num_attention_heads // tp % u == 0]), dp=draw.choice([1, 1, 2, 3]),
            replicas=draw.choice([1, 2, 16, 128]), ep=draw.choice([e for e in (1, 2, 8, 64) if experts % e == 0]),
            etp=draw.choice([e for e in (1, 2, 4) if experts > 1 and tp % e == 0] or [1]), micro_batch_size=draw.choice([1, 2, 4, 6]),
            recompute=draw.choice(["none", "selective", "partial", "full"]), zero_stage=draw.choice([0, 1, 2, 3]),
            sequence_parallel=draw.random() < 0.7, vocabulary_parallel_loss=draw.random() < 0.7, framework=draw.choice(frameworks),
            hiding_rounds=draw.choice([1.0, 1.0, 2.0, 3.5]), shard_group=draw.choice([None, None, 8])))
    return found


def numbers(part: PartCost) -> list[float]:
    return [part.forward_s, part.backward_s, part.weights_bytes, part.gradients_bytes, part.optimizer_bytes, part.activation_bytes]


def assert_agrees(of: Problem, units: list[UnitSpec]) -> UnitTable:
    table, layers, floors = units_of(of, units), layers_of(of, units), layers_of(of, units, least=True)
    classes = setting(of).classes
    for i, spec in enumerate(units):
        alone, least = unit_costs(of, spec), layer_costs(of, spec, least=True)
        parts = [numbers(part) for part in (*alone.layers.values(), alone.embedding, alone.head, alone.shared_ends)]
        room = [alone.logits_bytes, alone.buffers_bytes, alone.head_buffers_bytes, alone.capacity_bytes]
        piece, = alone.sync
        sync = [*piece.per_layer_s.values(), piece.constant_s, piece.embedding_s, piece.head_s, piece.shared_ends_s]
        for together, expected in ((table.parts[i], parts), (layers.parts[i], parts[:len(classes)]), (table.room[i], room),
                                   (layers.room[i], [0.0, *room[1:]]), (table.sync[i], sync),
                                   (floors.parts[i], [numbers(least.layers[cls]) for cls in classes])):
            np.testing.assert_allclose(together, expected, rtol=1e-12, atol=0.0, err_msg=str(spec))
    return table


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("model", MODELS)
def test_units_together_cost_what_each_costs_alone(model, workload):
    of = asked(model, workload)
    assert_agrees(of, random_units(of, 80))


@pytest.mark.parametrize("model", MODELS)
def test_many_units_in_one_call(model):
    """One framework and one node group, so that most units share a call, under a calibration."""
    of = replace(asked(model, "bf16"), calibration=CALIBRATION)
    found = [replace(spec, groups=("b",), sequence_parallel=True, vocabulary_parallel_loss=True, shard_group=None)
             for spec in random_units(of, 200, frameworks=("megatron",))]
    assert_agrees(of, found)


def test_one_unit_none_and_units_alike():
    of = asked("experts", "bf16")
    one = random_units(of, 1)
    assert_agrees(of, one)
    assert_agrees(of, one * 3)
    assert_agrees(of, [replace(unit(groups=("a",)), replicas=n) for n in (1, 2, 3)])
    assert units_of(of, []).parts.shape == (0, len(setting(of).classes) + 3, 6)


def test_rows_keep_the_order_of_the_units():
    of = asked("dense", "bf16")
    table = units_of(of, random_units(of, 40))
    rows = np.array([7, 3, 3])
    assert (table.at(rows).sync == table.sync[rows]).all() and table.at(rows).parts.shape[0] == 3


def test_measured_units_are_priced_by_their_profiles():
    rows = tuple(LayerProfile(gpu="A100-SXM4-80GB", tp=tp, micro_batch_size=b, layer="block", forward_s=0.003 * b / tp, backward_s=0.007 * b / tp)
                 for tp in (1, 2, 8) for b in (1, 4))
    collectives = (CollectiveProfile(op="all_reduce", groups=("g",), ranks=8, bytes=1e6, seconds=1e-3),)
    of = replace(problem(SMALL), profiles=Profiles(layers=rows, collectives=collectives, extrapolate=True))
    table = assert_agrees(of, random_units(of, 60))
    assert not np.allclose(table.parts, units_of(replace(of, profiles=None), random_units(of, 60)).parts)
