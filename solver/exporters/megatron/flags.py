"""The command line of Megatron-LM's pretrain_gpt.py for a plan, in groups. Each flag is a tuple of words, quoted by whoever writes them."""
from itertools import groupby

from solver.domain.model import Architecture
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.domain.workload import Precision, TrainingWorkload
from solver.exporters.megatron.degree_rules import instances
from solver.exporters.megatron.model_rules import ATTENTION_BACKENDS, OPTIMIZERS
from solver.exporters.megatron.pipeline_layout import write_layout

Flag = tuple[str, ...]
PRECISION_FLAGS: dict[Precision, list[Flag]] = {
    "bf16": [("--bf16",)], "fp16": [("--fp16",)], "fp32": [], "fp8": [("--bf16",), ("--fp8-format", "hybrid")],
    "nvfp4": [("--bf16",), ("--fp4-format", "e2m1"), ("--fp4-recipe", "nvfp4")]}


def model_flags(model: Architecture, seq_len: int) -> list[Flag]:
    """Dimensions of the model."""
    flags: list[Flag] = [
        ("--transformer-impl", "transformer_engine"), ("--num-layers", str(model.num_layers)), ("--hidden-size", str(model.hidden_size)),
        ("--ffn-hidden-size", str(model.ffn_hidden_size)), ("--num-attention-heads", str(model.num_attention_heads)),
        ("--seq-length", str(seq_len)), ("--max-position-embeddings", str(max(model.max_position_embeddings or 0, seq_len))),
        ("--position-embedding-type", "rope" if model.max_position_embeddings is None else "learned_absolute"),
        ("--normalization", "LayerNorm" if model.norm_bias else "RMSNorm"), ("--attention-dropout", "0"), ("--hidden-dropout", "0")]
    flags += _attention(model)
    if model.gated_ffn:
        flags.append(("--swiglu",))
    if not model.ffn_bias:
        flags.append(("--disable-bias-linear",))
        if model.attention_bias:
            flags.append(("--add-qkv-bias",))
    if not model.tied_embeddings:
        flags.append(("--untie-embeddings-and-output-weights",))
    if model.mtp_layers:
        flags.append(("--mtp-num-layers", str(model.mtp_layers)))
    return flags


def expert_flags(model: Architecture) -> list[Flag]:
    """The mixture of experts, where there is one."""
    if model.moe is None:
        return []
    flags: list[Flag] = [
        ("--num-experts", str(model.moe.num_experts)), ("--moe-router-topk", str(model.moe.top_k)),
        ("--moe-ffn-hidden-size", str(model.moe.expert_ffn_hidden_size)), ("--moe-token-dispatcher-type", "alltoall"), ("--moe-grouped-gemm",)]
    if model.moe.shared_width:
        flags.append(("--moe-shared-expert-intermediate-size", str(model.moe.shared_width)))
    pattern = [int(model.is_moe_layer(i)) for i in range(model.num_layers)]
    if not all(pattern):
        flags.append(("--moe-layer-freq", _runs(pattern)))
    return flags


def parallel_flags(problem: Problem, plan: Plan, pipelines_first: bool) -> list[Flag]:
    """Degrees, the split of layers, and the optimizer's sharding."""
    stage, pp = plan.pipelines[0].stages[0], len(plan.pipelines[0].stages)
    flags: list[Flag] = [("--tensor-model-parallel-size", str(stage.tp)), ("--pipeline-model-parallel-size", str(pp))]
    if plan.sequence_parallel and stage.tp > 1:
        flags.append(("--sequence-parallel",))
    if stage.cp > 1:
        flags += [("--context-parallel-size", str(stage.cp)), *_context(stage.cp, plan.ulysses or 1)]
    if problem.model.moe is not None:
        flags += [("--expert-model-parallel-size", str(stage.ep)), ("--expert-tensor-parallel-size", str(stage.etp))]
    flags += _layers(problem.model, plan)
    if pipelines_first:
        flags.append(("--use-tp-pp-dp-mapping",))
    if stage.zero_stage == 1:
        flags += [("--use-distributed-optimizer",), ("--overlap-grad-reduce",), ("--overlap-param-gather",)]
        if instances(plan) > 1:
            flags.append(("--num-distributed-optimizer-instances", str(instances(plan))))
    return flags


def step_flags(work: TrainingWorkload, plan: Plan) -> list[Flag]:
    """Batch, recompute, precision, optimizer."""
    stage = plan.pipelines[0].stages[0]
    flags: list[Flag] = [("--micro-batch-size", str(plan.micro_batch_size // stage.dp)), ("--global-batch-size", str(work.global_batch_size))]
    if stage.recompute == "full":
        flags += [("--recompute-granularity", "full"), ("--recompute-method", "uniform"), ("--recompute-num-layers", "1")]
    elif stage.recompute == "selective":
        flags += [("--recompute-granularity", "selective"), ("--recompute-modules", "core_attn")]
    flags += PRECISION_FLAGS[work.precision]
    if work.gradient_precision == "bf16":
        flags.append(("--grad-reduce-in-bf16",))
    flags.append(("--attention-backend", ATTENTION_BACKENDS[work.attention_kernel] or "auto"))
    if isinstance(work.optimizer, str):
        flags.append(("--optimizer", OPTIMIZERS[work.optimizer]))
    return flags


def mock_flags(model: Architecture) -> list[Flag]:
    """A short run on made-up data, to try the layout: replaced by the user's own arguments. The tokenizer adds one token of its own."""
    return [("--mock-data",), ("--tokenizer-type", "NullTokenizer"), ("--vocab-size", str(max(model.vocab_size - 1, 1))), ("--train-iters", "20"),
            ("--eval-iters", "0"), ("--lr", "1e-5"), ("--lr-decay-style", "constant"), ("--log-interval", "1"), ("--log-throughput",)]


def _attention(model: Architecture) -> list[Flag]:
    flags: list[Flag] = []
    if model.mla is not None:
        mla = model.mla
        flags += [("--multi-latent-attention",), ("--kv-lora-rank", str(mla.kv_lora_rank)), ("--qk-head-dim", str(mla.qk_nope_head_dim)),
                  ("--qk-pos-emb-head-dim", str(mla.qk_rope_head_dim)), ("--v-head-dim", str(mla.v_head_dim))]
        if mla.q_lora_rank:
            flags.append(("--q-lora-rank", str(mla.q_lora_rank)))
    else:
        flags.append(("--kv-channels", str(model.head_width)))
        if model.kv_heads != model.num_attention_heads:
            flags += [("--group-query-attention",), ("--num-query-groups", str(model.kv_heads))]
    if model.qk_norm == "head":
        flags.append(("--qk-layernorm",))
    if model.attention_sinks:
        flags.append(("--softmax-type", "learnable"))
    if model.layer_types and model.sliding_window and "sliding_attention" in model.layer_types:
        sliding = [int(kind == "sliding_attention") for kind in model.layer_types]
        flags.append(("--window-size", f"{model.sliding_window - 1},0"))
        if not all(sliding):
            flags.append(("--window-attn-skip-freq", _runs(sliding)))
    return flags


def _context(cp: int, ulysses: int) -> list[Flag]:
    if ulysses == 1:
        return [("--cp-comm-type", "p2p")]
    if ulysses == cp:
        return [("--cp-comm-type", "a2a")]
    return [("--cp-comm-type", "a2a+p2p"), ("--hierarchical-context-parallel-sizes", str(ulysses), str(cp // ulysses))]


def _layers(model: Architecture, plan: Plan) -> list[Flag]:
    stages = plan.pipelines[0].stages
    if len(stages) == 1:
        return []
    chunks = [last - first + 1 for v in range(plan.virtual_stages) for first, last in (stage.layers[v] for stage in stages)]
    if len(set(chunks)) > 1 or model.mtp_layers:
        return [("--pipeline-model-parallel-layout", write_layout(chunks, model.mtp_layers))]
    return [("--num-layers-per-virtual-pipeline-stage", str(chunks[0]))] if plan.virtual_stages > 1 else []


def _runs(bits: list[int]) -> str:
    """A Python list expression such as [0]*1+[1]*60, the form that Megatron-LM evaluates."""
    return "+".join(f"[{bit}]*{len(list(run))}" for bit, run in groupby(bits))
