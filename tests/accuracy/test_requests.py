"""Rows become the requests that their sources mean."""
import csv

import pytest

from tests.accuracy.requests import DATA, NotStated, facts, request_of, source_of
from tests.accuracy.samples import cells


def test_what_is_stated_is_asked() -> None:
    body = request_of(cells(n_kv_heads="8", ffn_hidden="2816", gated_ffn="1", vocab="32000", internode_gbps_per_gpu="200", sp="0", zero_stage="3",
                            recompute="full", flash_attention="0"))
    assert body == {
        "model": {"architecture": {"kind": "decoder", "name": "gpt", "num_layers": 24, "hidden_size": 1024, "ffn_hidden_size": 2816,
                                   "gated_ffn": True, "num_attention_heads": 16, "num_kv_heads": 8, "vocab_size": 32000,
                                   "tied_embeddings": False}},
        "cluster": {"name": "c", "node_groups": [{"name": "g", "nodes": 2, "gpus_per_node": 8, "gpu": "A100-SXM4-80GB",
                                                  "network": {"bandwidth_gb_s": 25.0}}]},
        "workload": {"kind": "training", "seq_len": 2048, "global_batch_size": 64, "precision": "bf16", "attention_kernel": "unfused"},
        "strategy": {"tp": 2, "pp": 2, "dp": 4, "cp": 1, "ep": 1, "virtual_stages": 1, "micro_batch_size": 1, "zero_stage": 3,
                     "sequence_parallel": False, "recompute": "full", "schedule": "1f1b"}}


def test_what_is_not_stated_is_the_default_of_the_stack() -> None:
    body = request_of(cells(recompute="", precision="fp16"))
    assert body["model"]["architecture"] | {"ffn_hidden_size": 4096, "num_kv_heads": 16, "vocab_size": 51200} == body["model"]["architecture"]
    assert "network" not in body["cluster"]["node_groups"][0]
    assert body["workload"]["attention_kernel"] == "unfused"
    assert (body["strategy"]["zero_stage"], body["strategy"]["sequence_parallel"], body["strategy"]["recompute"]) == (1, True, "unknown")
    assert request_of(cells(tp="1"))["strategy"]["sequence_parallel"] is False
    assert request_of(cells())["workload"]["attention_kernel"] == "auto"


def test_schedules_follow_their_virtual_stages_and_names() -> None:
    schedules = [request_of(cells(schedule=name, vpp=vpp))["strategy"]["schedule"] for name, vpp in
                 (("", ""), ("none", "1"), ("interleaved", ""), ("interleaved", "2"), ("zb-2p", "1"), ("gpipe", ""))]
    assert schedules == ["1f1b", "1f1b", "1f1b", "interleaved", "zb-h2", "gpipe"]


def test_a_source_has_its_stack() -> None:
    body = request_of(cells(id="vtrm-1"))
    assert body["strategy"]["framework"] == "megatron_deepspeed" and body["model"]["architecture"]["tied_embeddings"]
    assert not request_of(cells(id="vtrm-1", notes="untied embeddings"))["model"]["architecture"]["tied_embeddings"]
    assert "framework" not in request_of(cells())["strategy"]
    assert request_of(cells() | {"framework": "fsdp"})["strategy"]["framework"] == "fsdp"
    assert request_of(cells(id="nmo-1"))["workload"]["gradient_precision"] == "bf16"
    assert request_of(cells(notes="bf16-grad phase"))["workload"]["gradient_precision"] == "bf16"
    hag = request_of(cells(id="hag-1", notes="kernel=flash_attention2; trial=7"))
    assert (hag["workload"]["attention_kernel"], hag["workload"]["norm_kernel"]) == ("flash_2", "eager")
    assert hag["strategy"]["vocabulary_parallel_loss"] is False


def test_boundaries_between_modules_become_layers_of_stages() -> None:
    assert request_of(cells(id="amp-1", notes="modules = [0, 15, 30]"))["strategy"]["layers_per_stage"] == [12, 12]
    with pytest.raises(NotStated, match="without layers"):
        request_of(cells(id="amp-1", notes="modules = [0, 27, 30]"))
    assert "layers_per_stage" not in request_of(cells(notes="modules = [0, 15, 30]"))["strategy"]


def test_mixtures_of_experts_have_what_the_table_has_no_column_for() -> None:
    plain = request_of(cells(n_experts="8"))["model"]["architecture"]
    assert plain["moe"] == {"num_experts": 8, "top_k": 2, "expert_ffn_hidden_size": 4096} and "mla" not in plain
    deep = request_of(cells(model_name="deepseek-v3", n_experts="256", top_k="8", moe_ffn_hidden="2048"))["model"]["architecture"]
    assert deep["moe"] == {"num_experts": 256, "top_k": 8, "expert_ffn_hidden_size": 2048, "num_shared_experts": 1, "first_dense_layers": 3}
    assert deep["mla"]["kv_lora_rank"] == 512
    assert request_of(cells(model_name="qwen3-8b"))["model"]["architecture"]["head_dim"] == 128


@pytest.mark.parametrize(("changed", "reason"), [
    ({"precision": ""}, "precision"), ({"micro_batch": "", "tp": "?"}, "tp, micro_batch"), ({"gpu": "A100|V100"}, "several"),
    ({"schedule": "dualpipe"}, "dualpipe"), ({"tp": "3"}, "does not divide"), ({"ep": "3"}, "ep does not"),
    ({"n_gpus": "12", "tp": "1", "pp": "1"}, "last node"),
])
def test_rows_that_leave_too_much_unsaid_say_so(changed: dict[str, str], reason: str) -> None:
    with pytest.raises(NotStated, match=reason):
        request_of(cells(**changed))


def test_every_source_of_the_committed_rows_is_described_and_may_be_committed() -> None:
    with (DATA / "train.csv").open(newline="") as handle:
        sources = {source_of(row) for row in csv.DictReader(handle)}
    assert sources <= set(facts()["sources"])
    assert "hag" not in sources
    listed = (DATA / "README.md").read_text()
    assert all(source in listed for source in sources)
