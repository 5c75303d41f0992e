"""Small problems for tests: builders with defaults, and hypothesis strategies over them."""
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from solver.catalog.loader import device
from solver.cost.unit import UnitSpec
from solver.domain.cluster import Cluster, FabricTier, NodeGroup
from solver.domain.layout import Edge, Layout, StageLayout
from solver.domain.model import MLA, Architecture, MoE
from solver.domain.problem import Problem
from solver.domain.workload import TrainingWorkload

SMALL = Architecture(num_layers=4, hidden_size=512, ffn_hidden_size=1536, num_attention_heads=8, num_kv_heads=4, vocab_size=4096)
GPUS = ("A100-SXM4-80GB", "H100-SXM5-80GB", "B200-SXM6-180GB", "V100-SXM2-32GB", "T4", "MI300X-192GB")


def node_group(name: str = "g", gpu: str = "A100-SXM4-80GB", nodes: int = 4, gpus_per_node: int = 8, link: float = 300.0, network: float = 25.0,
               **extra: Any) -> NodeGroup:
    tiers = (FabricTier(size=gpus_per_node, bandwidth_gb_s=link, latency_us=3.0, name="link"),
             FabricTier(size=nodes * gpus_per_node, bandwidth_gb_s=network, latency_us=5.0, name="network"))
    return NodeGroup(name=name, nodes=nodes, gpus_per_node=gpus_per_node, device=extra.pop("device", None) or device(gpu)[0], tiers=tiers, **extra)


def problem(model: Architecture = SMALL, groups: tuple[NodeGroup, ...] | None = None, links: tuple[Any, ...] = (), **workload: Any) -> Problem:
    cluster = Cluster(name="c", node_groups=groups or (node_group(),), links=links)
    return Problem(model=model, cluster=cluster, workload=TrainingWorkload(**{"seq_len": 512, "global_batch_size": 32, **workload}))


def unit(**changes: Any) -> UnitSpec:
    base = UnitSpec(groups=("g",), tp=1, cp=1, ulysses=1, dp=1, replicas=1, ep=1, etp=1, micro_batch_size=1, micro_batches=8, recompute="none",
                    zero_stage=1,
                    sequence_parallel=False, vocabulary_parallel_loss=True, framework=None)
    return replace(base, **changes)


def layout(model: Architecture = SMALL, pp: int = 1, virtual_stages: int = 1, micro_batches: int = 8, stage: dict[str, Any] | None = None,
           **changes: Any) -> Layout:
    """A layout of alike stages with layers spread in order."""
    per_chunk, extra = divmod(model.num_layers, pp * virtual_stages)
    sizes = [per_chunk + (i < extra) for i in range(pp * virtual_stages)]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    ranges = [(start, start + size - 1) for start, size in zip(starts, sizes, strict=True)]
    body = {"tp": 1, "cp": 1, "dp": 1, "ep": 1, "etp": 1, "recompute": "none", "zero_stage": 1, "groups": ("g",), **(stage or {})}
    stages = tuple(StageLayout(layers=tuple(ranges[c * pp + j] for c in range(virtual_stages)), **body) for j in range(pp))
    base: dict[str, Any] = {"replicas": 1, "micro_batch_size": 1, "schedule": "interleaved" if virtual_stages > 1 else "1f1b",
                            "sequence_parallel": False,
                            "ulysses": 1, "vocabulary_parallel_loss": True}
    return Layout(stages=stages, edges=tuple(Edge(same_node=True) for _ in range(pp)), micro_batches=micro_batches, virtual_stages=virtual_stages,
                  **{**base, **changes})


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    """Models of all kinds that are priced: odd head widths, KV groups, experts, latent attention, windows, tied embeddings."""
    heads = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 16]))
    kv = draw(st.sampled_from([k for k in range(1, heads + 1) if heads % k == 0]))
    width = draw(st.sampled_from([8, 20, 64, 128]))
    layers = draw(st.integers(1, 6))
    moe = mla = None
    if draw(st.booleans()):
        experts = draw(st.sampled_from([2, 4, 8, 128]))
        moe = MoE(num_experts=experts, top_k=draw(st.integers(1, min(experts, 8))), expert_ffn_hidden_size=draw(st.sampled_from([64, 768])),
                  num_shared_experts=draw(st.integers(0, 1)), first_dense_layers=draw(st.integers(0, layers)))
    if draw(st.integers(0, 3)) == 0:
        mla = MLA(q_lora_rank=draw(st.sampled_from([None, 96])), kv_lora_rank=64, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64)
    encoder = not moe and not mla and layers > 1 and draw(st.integers(0, 2)) == 0
    windowed = not encoder and draw(st.booleans())
    types = tuple(draw(st.lists(st.sampled_from(["full_attention", "sliding_attention"]), min_size=layers, max_size=layers))) if windowed else None
    return Architecture(kind="encoder_decoder" if encoder else "decoder", num_encoder_layers=draw(st.integers(1, layers - 1)) if encoder else None,
                        num_layers=layers, hidden_size=heads * width, ffn_hidden_size=draw(st.sampled_from([48, 1024, 4096])),
                        gated_ffn=draw(st.booleans()),
                        num_attention_heads=heads, num_kv_heads=kv, vocab_size=draw(st.sampled_from([100, 32_000, 128_256])),
                        tied_embeddings=draw(st.booleans()),
                        moe=moe, mla=mla, layer_types=types, sliding_window=64 if windowed else None,
                        mtp_layers=0 if encoder else draw(st.sampled_from([0, 0, 1])))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """One node group of any device, any precision, kernels as they come."""
    group = node_group(gpu=draw(st.sampled_from(GPUS)), nodes=draw(st.sampled_from([1, 3, 64])), link=draw(st.sampled_from([16.0, 300.0, 900.0])),
                       network=draw(st.sampled_from([0.1, 25.0, 100.0])))
    return problem(draw(architectures()), (group,), seq_len=draw(st.sampled_from([16, 240, 4096, 131_072])), global_batch_size=48,
                   precision=draw(st.sampled_from(["bf16", "fp16", "fp32", "fp8", "nvfp4"])),
                   gradient_precision=draw(st.sampled_from(["fp32", "bf16"])),
                   attention_kernel=draw(st.sampled_from(["auto", "flash_1", "flash_2", "flash_3", "unfused"])),
                   norm_kernel=draw(st.sampled_from(["auto", "fused", "eager"])),
                   optimizer=draw(st.sampled_from(["adam", "sgd", "adafactor", "muon", "adam8bit"])))


@st.composite
def units(draw: st.DrawFn, of: Problem, frameworks: tuple[str | None, ...] = (None, "megatron", "megatron_deepspeed", "deepspeed")) -> UnitSpec:
    """Any unit that the model's dimensions allow, sequence barely divisible included."""
    model = of.model
    tp = draw(st.sampled_from([t for t in range(1, model.num_attention_heads + 1) if model.num_attention_heads % t == 0]))
    cp = draw(st.sampled_from([c for c in (1, 2, 4, 8) if of.workload.seq_len % (2 * c) == 0]))
    heads = model.num_attention_heads // tp
    ulysses = draw(st.sampled_from([u for u in (1, 2, 4, 8) if cp % u == 0 and heads % u == 0]))
    replicas = draw(st.sampled_from([1, 2, 16]))
    ep = draw(st.sampled_from([e for e in (1, 2, 4) if model.moe and model.moe.num_experts % e == 0 and (tp * cp * replicas) % e == 0] or [1]))
    return unit(tp=tp, cp=cp, ulysses=ulysses, replicas=replicas, ep=ep, micro_batch_size=draw(st.sampled_from([1, 2, 6])),
                recompute=draw(st.sampled_from(["none", "selective", "partial", "full"])), zero_stage=draw(st.integers(0, 3)),
                sequence_parallel=draw(st.booleans()), vocabulary_parallel_loss=draw(st.booleans()),
                framework=draw(st.sampled_from(list(frameworks))))
