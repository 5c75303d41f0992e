"""Encoder-decoders: what their layers cost beside a decoder's, what single stages hold once, and what travels between stages."""
from dataclasses import replace

import pytest

from solver.cost.estimate import estimate
from solver.cost.pipeline import edges
from solver.cost.stage_memory import memory_of
from solver.cost.unit import PartCost
from solver.cost.units import unit_costs
from solver.domain.degrees import Strategy
from solver.domain.estimate import StageMemory
from solver.domain.model import Architecture, LayerClass, layer_classes
from solver.errors import InputError
from solver.units import GIB
from tests.solver.cost.problems import layout, node_group, problem, unit

MODEL = Architecture(kind="encoder_decoder", num_layers=8, num_encoder_layers=4, hidden_size=1024, ffn_hidden_size=4096, num_attention_heads=16,
                     vocab_size=32_000)
ENCODER, ENTRY, DECODER = layer_classes(MODEL)[0], layer_classes(MODEL)[4], layer_classes(MODEL)[5]


def parts(model: Architecture = MODEL, **workload: object) -> dict[LayerClass, PartCost]:
    return unit_costs(problem(model, **workload), unit()).layers


def test_encoder_layers_come_first_and_the_decoder_begins_once() -> None:
    assert [(c.causal, c.cross_attention, c.entry) for c in layer_classes(MODEL)] == [
        *[(False, False, False)] * 4, (True, True, True), *[(True, True, False)] * 3]


def test_half_of_the_layers_are_the_encoder_s_where_nothing_is_said() -> None:
    assert layer_classes(replace(MODEL, num_encoder_layers=None)) == layer_classes(MODEL)


@pytest.mark.parametrize("change", [{"kind": "decoder"}, {"num_encoder_layers": 8}, {"num_layers": 1, "num_encoder_layers": None}, {"mtp_layers": 1}])
def test_a_model_without_an_encoder_or_without_a_decoder_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError):
        replace(MODEL, **change)


@pytest.mark.parametrize("kernel", ["flash_2", "unfused"])
def test_attention_of_an_encoder_sees_the_whole_square(kernel: str) -> None:
    """Fused kernels skip the masked half of a decoder; unfused ones compute it and throw it away."""
    plain = Architecture(num_layers=8, hidden_size=1024, ffn_hidden_size=4096, num_attention_heads=16, vocab_size=32_000)
    encoder, decoder = (parts(m, seq_len=16_384, attention_kernel=kernel) for m in (MODEL, plain))
    longer = encoder[ENCODER].forward_s / decoder[layer_classes(plain)[0]].forward_s
    assert longer > 1.3 if kernel == "flash_2" else longer == pytest.approx(1.0)


def test_a_decoder_layer_costs_more_than_an_encoder_layer() -> None:
    found = parts()
    for name in ("forward_s", "backward_s", "activation_bytes", "weights_bytes"):
        assert getattr(found[DECODER], name) > 1.15 * getattr(found[ENCODER], name)
    more = 4 * 1024**2 + 1024                              # four projections and a norm
    assert found[DECODER].weights_bytes - found[ENCODER].weights_bytes == 2.0 * more


def test_the_embedding_is_held_where_encoder_and_decoder_begin() -> None:
    of = problem(MODEL, (node_group(gpus_per_node=8),))
    alone, split = (memory_of(of, layout(MODEL, pp=pp, stage={"zero_stage": 0})).stages for pp in (1, 2))
    embedding = MODEL.vocab_size * MODEL.hidden_size * 18.0 / GIB

    def states(s: StageMemory) -> float:
        return s.weights_gib + s.gradients_gib + s.optimizer_gib

    assert sum(states(s) for s in split) - states(alone[0]) == pytest.approx(embedding)


def test_tied_and_copied_embeddings_are_all_one_on_a_single_stage() -> None:
    of = problem(replace(MODEL, tied_embeddings=True))
    alone = memory_of(of, layout(of.model, stage={"zero_stage": 0})).stages[0]
    facts = estimate(of, Strategy(zero_stage=0)).model
    assert alone.weights_gib == pytest.approx(2.0 * facts.parameters / GIB)


def test_the_encoder_s_output_travels_to_every_stage_of_the_decoder() -> None:
    """Eight stages of a layer each: three boundaries inside the encoder, one behind it, three inside the decoder, each with two tensors."""
    times = edges(problem(MODEL, seq_len=65_536), layout(MODEL, pp=8))[:7]
    assert times[:4] == (times[0],) * 4 and times[4:] == (times[4],) * 3
    assert 1.5 * times[0] < times[4] <= 2.0 * times[0]


def test_virtual_stages_are_no_layout_of_an_encoder_decoder() -> None:
    of = problem(MODEL, (node_group(gpus_per_node=8),))
    found = estimate(of, Strategy(pp=2, virtual_stages=2, schedule="interleaved"))
    assert [r.code for r in found.reasons] == ["pipeline.interleaved_encoder"]
