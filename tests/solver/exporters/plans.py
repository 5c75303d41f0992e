"""Small problems and plans laid out by hand, with every default stated once."""
from typing import Any

from solver.domain.cluster import Cluster, Device, FabricTier, NodeGroup
from solver.domain.model import MLA, Architecture, MoE
from solver.domain.placement import expand, layers_by_stage
from solver.domain.plan import DeviceSlice, Pipeline, Plan, Stage
from solver.domain.problem import Problem
from solver.domain.workload import TrainingWorkload

DEVICE = Device(name="test-80gb", vendor="test", arch="hopper", memory_gib=80, reported_memory_gib=79, memory_bandwidth_gb_s=2000, bf16_tflops=300,
                link_type="test", link_gb_s=300, link_domain_gpus=8, network_gb_s=25)


def group(name: str, nodes: int, **more: Any) -> NodeGroup:
    tiers = (FabricTier(size=8, bandwidth_gb_s=300, latency_us=3, name="link"),
             FabricTier(size=8 * nodes, bandwidth_gb_s=25, latency_us=5, name="network"))
    return NodeGroup(**{"name": name, "nodes": nodes, "gpus_per_node": 8, "device": DEVICE, "tiers": tiers} | more)


def dense(**more: Any) -> Architecture:
    """A Llama of 40 layers."""
    return Architecture(**{"name": "dense-40", "num_layers": 40, "hidden_size": 5120, "ffn_hidden_size": 13824, "num_attention_heads": 40,
                           "num_kv_heads": 8, "vocab_size": 128256} | more)


def experts(**more: Any) -> Architecture:
    """A small DeepSeek: MLA, one dense layer, then experts, one MTP layer."""
    return Architecture(**{
        "name": "experts-13", "num_layers": 13, "hidden_size": 2048, "ffn_hidden_size": 10944, "num_attention_heads": 16, "vocab_size": 102400,
        "mtp_layers": 1, "moe": MoE(num_experts=64, top_k=6, expert_ffn_hidden_size=1408, num_shared_experts=2, first_dense_layers=1),
        "mla": MLA(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)} | more)


def problem(model: Architecture | None = None, *groups: NodeGroup, seq_len: int = 4096, batch: int = 64, **work: Any) -> Problem:
    return Problem(model=model or dense(), cluster=Cluster(name="test", node_groups=groups or (group("fast", 2), group("slow", 2))),
                   workload=TrainingWorkload(seq_len=seq_len, global_batch_size=batch, **work))


def uniform(of: Problem, strategy: Any) -> Plan:
    plan, reasons = expand(of, strategy)
    assert plan is not None, reasons
    return plan


def uneven(of: Problem, sizes: list[int], *, tp: int = 8, micro_batches: int = 64, virtual_stages: int = 1, **more: Any) -> Plan:
    """One pipeline over whole nodes in order: stage i on node i, `sizes` layers per chunk in model order."""
    stages = len(sizes) // virtual_stages
    nodes = [(g.name, n) for g in of.cluster.node_groups for n in range(g.nodes)]
    split = layers_by_stage(sizes, stages)
    stage_more = {k: more.pop(k) for k in ("recompute", "zero_stage", "cp", "dp", "ep", "etp") if k in more}
    made = tuple(Stage(layers=split[i], tp=tp, devices=(DeviceSlice(node_group=nodes[i][0], node=nodes[i][1], gpus=tuple(range(8))),), **stage_more)
                 for i in range(stages))
    return Plan(pipelines=(Pipeline(micro_batches=micro_batches, stages=made),), virtual_stages=virtual_stages,
                schedule="interleaved" if virtual_stages > 1 else "1f1b", **more)
