"""The fields of the form: where each one's value stands in the request body, and how it is asked for."""

import typing
from dataclasses import dataclass
from typing import Literal

from solver.domain.degrees import Recompute
from solver.domain.launchers import Launcher, Tier
from solver.domain.model import ModelKind
from solver.domain.workload import AttentionKernel, GradientPrecision, OptimizerName, Precision

Kind = Literal["text", "int", "float", "ints", "choice", "flag", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One input. `path` is relative to the object that the field belongs to: the body, a node group, or a link."""

    name: str
    path: tuple[str | int, ...]
    label: str
    kind: Kind = "text"
    hint: str = ""
    choices: tuple[str, ...] = ()
    placeholder: str = ""
    default: str = ""


def _choices(literal: object) -> tuple[str, ...]:
    return tuple(typing.get_args(literal))


MODEL_KINDS = ("preset", "config", "dimensions")

PRESET = (Field(name="preset", path=("model", "preset"), label="Preset"),)
CONFIG = (Field(name="hf_config", path=("model", "hf_config"), label="config.json", kind="json", hint="The file as it stands on Hugging Face."),)

_A = ("model", "architecture")
DIMENSIONS = (
    Field(name="arch_name", path=(*_A, "name"), label="Name", default="model"),
    Field(name="kind", path=(*_A, "kind"), label="Kind", kind="choice", choices=_choices(ModelKind)),
    Field(name="num_layers", path=(*_A, "num_layers"), label="Layers", kind="int", placeholder="80"),
    Field(name="hidden_size", path=(*_A, "hidden_size"), label="Hidden size", kind="int", placeholder="8192"),
    Field(name="ffn_hidden_size", path=(*_A, "ffn_hidden_size"), label="FFN hidden size", kind="int", placeholder="28672"),
    Field(name="num_attention_heads", path=(*_A, "num_attention_heads"), label="Attention heads", kind="int", placeholder="64"),
    Field(name="num_kv_heads", path=(*_A, "num_kv_heads"), label="KV heads", kind="int", hint="Blank: as many as attention heads.", placeholder="8"),
    Field(name="head_dim", path=(*_A, "head_dim"), label="Head dimension", kind="int", hint="Blank: hidden size / heads."),
    Field(name="vocab_size", path=(*_A, "vocab_size"), label="Vocabulary", kind="int", placeholder="128256"),
    Field(
        name="gated_ffn",
        path=(*_A, "gated_ffn"),
        label="Gated FFN",
        kind="choice",
        choices=("true", "false"),
        hint="SwiGLU and the like: three matrices.",
    ),
    Field(name="tied_embeddings", path=(*_A, "tied_embeddings"), label="Tied embeddings", kind="choice", choices=("true", "false")),
    Field(name="moe_num_experts", path=(*_A, "moe", "num_experts"), label="Experts", kind="int", hint="Blank: a dense model."),
    Field(name="moe_top_k", path=(*_A, "moe", "top_k"), label="Experts per token", kind="int"),
    Field(name="moe_ffn", path=(*_A, "moe", "expert_ffn_hidden_size"), label="Expert FFN size", kind="int"),
)

CLUSTER = (Field(name="cluster_name", path=("cluster", "name"), label="Cluster name", default="cluster"),)

GROUP = (
    Field(name="name", path=("name",), label="Name", placeholder="h100"),
    Field(name="gpu", path=("gpu",), label="GPU", placeholder="H100-SXM5-80GB"),
    Field(name="nodes", path=("nodes",), label="Nodes", kind="int", placeholder="4"),
    Field(name="gpus_per_node", path=("gpus_per_node",), label="GPUs / node", kind="int"),
    Field(name="network", path=("network", "bandwidth_gb_s"), label="Network GB/s", kind="float"),
    Field(name="price", path=("price_per_gpu_hour",), label="$ / GPU·h", kind="float"),
)
LINK = (
    Field(name="a", path=("between", 0), label="From"),
    Field(name="b", path=("between", 1), label="To"),
    Field(name="bandwidth", path=("bandwidth_gb_s",), label="GB/s per GPU", kind="float", placeholder="12.5"),
    Field(name="latency", path=("latency_us",), label="Latency µs", kind="float", placeholder="10"),
)

WORKLOAD = (
    Field(name="seq_len", path=("workload", "seq_len"), label="Sequence length", kind="int", default="4096", hint="Tokens."),
    Field(
        name="global_batch_size",
        path=("workload", "global_batch_size"),
        label="Global batch",
        kind="int",
        default="512",
        hint="Sequences per optimizer step.",
    ),
    Field(name="precision", path=("workload", "precision"), label="Precision", kind="choice", choices=_choices(Precision), default="bf16"),
    Field(name="optimizer", path=("workload", "optimizer"), label="Optimizer", kind="choice", choices=_choices(OptimizerName), default="adam"),
    Field(
        name="gradient_precision", path=("workload", "gradient_precision"), label="Gradients in", kind="choice", choices=_choices(GradientPrecision)
    ),
    Field(name="attention_kernel", path=("workload", "attention_kernel"), label="Attention kernel", kind="choice", choices=_choices(AttentionKernel)),
)

_C = ("constraints",)
CONSTRAINTS = (
    Field(name="uniform", path=(*_C, "uniform"), label="Uniform stages", kind="flag", hint="Every stage the same degrees and GPU count."),
    Field(name="launcher", path=(*_C, "launcher"), label="Launcher", kind="choice", choices=_choices(Launcher), hint="Only layouts that it can run."),
    Field(name="tier", path=(*_C, "tier"), label="Stages", kind="choice", choices=_choices(Tier), hint="How much they may differ."),
    Field(
        name="memory_margin",
        path=(*_C, "memory_margin"),
        label="Memory margin",
        kind="float",
        hint="Share of memory to leave free, 0 to 0.9. Empty: any plan that fits, even to the last byte.",
        default="0.08",
    ),
    Field(name="max_pp", path=(*_C, "max_pp"), label="Most stages (PP)", kind="int", placeholder="any"),
    Field(name="tp", path=(*_C, "tp"), label="TP degrees", kind="ints", placeholder="any, or 1, 2, 4, 8"),
    Field(name="micro_batch_size", path=(*_C, "micro_batch_size"), label="Micro-batch sizes", kind="ints", placeholder="any, or 1, 2"),
    Field(name="recompute", path=(*_C, "recompute", 0), label="Recompute", kind="choice", choices=_choices(Recompute)),
    Field(name="time_limit_s", path=("search", "time_limit_s"), label="Time limit, s", kind="float", placeholder="30"),
)

FIXED: dict[str, Field] = {f.name: f for f in (*PRESET, *CONFIG, *DIMENSIONS, *CLUSTER, *WORKLOAD, *CONSTRAINTS)}
BY_MODEL_KIND: dict[str, tuple[Field, ...]] = {"preset": PRESET, "config": CONFIG, "dimensions": DIMENSIONS}
