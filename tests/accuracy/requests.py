"""A row of measured runs as the body of an estimate.

What a row does not state is asked as the usual default of its stack, not as "off": ZeRO-1, sequence parallelism beside tensor parallelism,
unfused attention under fp16 (which was usual before fused kernels). What belongs to a source as a whole stands in `data/sources.toml`.
"""
import functools
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Cells = Mapping[str, str]
Body = dict[str, Any]

DATA = Path(__file__).parent / "data"
NEEDED = ("n_layers", "hidden", "n_heads", "seq_len", "n_gpus", "tp", "pp", "micro_batch", "global_batch")
UNPRICED_SCHEDULES = ("dualpipe",)
GPUS_PER_NODE = 8
VOCABULARY = 51_200                                       # GPT-2's, padded
TOP_K = 2
BITS_PER_BYTE = 8


class NotStated(Exception):
    """The row leaves too much unsaid to be asked, or says what a uniform layout cannot express."""


@functools.cache
def facts() -> dict[str, Any]:
    """`data/sources.toml`."""
    return tomllib.loads((DATA / "sources.toml").read_text())


def source_of(cells: Cells) -> str:
    """The source of a row: its id up to the first hyphen."""
    return cells["id"].split("-")[0]


def source_facts(source: str) -> dict[str, Any]:
    """What is known of a source; nothing of one that is not listed."""
    found: dict[str, Any] = facts()["sources"].get(source, {})
    return found


def number(cells: Cells, column: str) -> float | None:
    """A cell as a number; None where it is empty or a word."""
    try:
        return float((cells.get(column) or "").strip())
    except ValueError:
        return None


def whole(cells: Cells, column: str) -> int | None:
    value = number(cells, column)
    return None if value is None else round(value)


def request_of(cells: Cells) -> Body:
    """The body of POST /v1/estimates; recompute is "unknown" where the row does not state it. Raises NotStated."""
    _check(cells)
    return {"model": {"architecture": _architecture(cells)}, "cluster": {"name": "c", "node_groups": [_node_group(cells)]},
            "workload": _workload(cells), "strategy": _strategy(cells)}


def _check(cells: Cells) -> None:
    if not cells.get("precision"):
        raise NotStated("precision is not stated")
    missing = [name for name in NEEDED if whole(cells, name) is None]
    if missing:
        raise NotStated(f"{', '.join(missing)} not stated")
    if "|" in cells["gpu"]:
        raise NotStated("several GPU types in one job")
    if cells.get("schedule") in UNPRICED_SCHEDULES:
        raise NotStated(f"schedule {cells['schedule']}")
    gpus = _size(cells, "n_gpus")
    if gpus % (_size(cells, "tp") * _size(cells, "pp") * _size(cells, "cp")):
        raise NotStated("tp x pp x cp does not divide the GPUs")
    if (gpus // _size(cells, "pp")) % _size(cells, "ep"):
        raise NotStated("ep does not divide the GPUs of a stage")
    if gpus % _gpus_per_node(cells):
        raise NotStated("the last node is not full")


def _size(cells: Cells, column: str) -> int:
    """A degree, 1 where it is not stated."""
    return whole(cells, column) or 1


def _gpus_per_node(cells: Cells) -> int:
    per_node = whole(cells, "gpus_per_node")
    return min(GPUS_PER_NODE if per_node is None else per_node, _size(cells, "n_gpus"))


def _architecture(cells: Cells) -> Body:
    name, hidden, heads = cells["model_name"] or "model", _size(cells, "hidden"), _size(cells, "n_heads")
    kv_heads, vocabulary = whole(cells, "n_kv_heads"), whole(cells, "vocab")
    ffn = whole(cells, "ffn_hidden") or 4 * hidden
    tied = source_facts(source_of(cells)).get("tied_embeddings", False) and "untie" not in cells["notes"]
    body: Body = {"kind": "decoder", "name": name, "num_layers": whole(cells, "n_layers"), "hidden_size": hidden, "ffn_hidden_size": ffn,
                  "gated_ffn": cells["gated_ffn"] == "1", "num_attention_heads": heads, "num_kv_heads": heads if kv_heads is None else kv_heads,
                  "vocab_size": VOCABULARY if vocabulary is None else vocabulary, "tied_embeddings": tied}
    body |= _by_beginning(facts()["models"], name)
    if (whole(cells, "n_experts") or 0) > 1:
        top_k, expert_ffn = whole(cells, "top_k"), whole(cells, "moe_ffn_hidden")
        latent = _by_beginning(facts()["expert_models"], name)
        body["moe"] = {"num_experts": whole(cells, "n_experts"), "top_k": TOP_K if top_k is None else top_k,
                       "expert_ffn_hidden_size": ffn if expert_ffn is None else expert_ffn, **latent}
        if latent:
            body["mla"] = facts()["latent_attention"]
    return body


def _by_beginning(table: Mapping[str, Body], name: str) -> Body:
    found: Body = {}
    for beginning, fields in table.items():
        if name.startswith(beginning):
            found |= fields
    return found


def _node_group(cells: Cells) -> Body:
    gpus, per_node = _size(cells, "n_gpus"), _gpus_per_node(cells)
    body: Body = {"name": "g", "nodes": gpus // per_node, "gpus_per_node": per_node, "gpu": facts()["gpus"].get(cells["gpu"], cells["gpu"])}
    network_gbit_s = number(cells, "internode_gbps_per_gpu")
    if network_gbit_s and gpus > per_node:
        body["network"] = {"bandwidth_gb_s": network_gbit_s / BITS_PER_BYTE}
    return body


def _workload(cells: Cells) -> Body:
    source = source_facts(source_of(cells))
    usual = "unfused" if cells["precision"] == "fp16" else "auto"
    body: Body = {"kind": "training", "seq_len": whole(cells, "seq_len"), "global_batch_size": whole(cells, "global_batch"),
                  "precision": cells["precision"], "attention_kernel": {"0": "unfused", "1": "auto"}.get(cells["flash_attention"], usual)}
    if source.get("kernel_in_notes"):
        named = re.search(r"kernel=([^;]+)", cells["notes"])
        unnamed = {"attention_kernel": "auto", "norm_kernel": "auto"}
        body |= facts()["kernels"].get(named.group(1).strip(), unnamed) if named else unnamed
    if "bf16-grad" in cells["notes"]:
        body["gradient_precision"] = "bf16"
    body |= source.get("workload", {})
    return body


def _strategy(cells: Cells) -> Body:
    source = source_facts(source_of(cells))
    tp, pp, cp, chunks, zero_stage = (_size(cells, "tp"), _size(cells, "pp"), _size(cells, "cp"), _size(cells, "vpp"), whole(cells, "zero_stage"))
    named = cells["schedule"] or "1f1b"
    body: Body = {"tp": tp, "pp": pp, "dp": _size(cells, "n_gpus") // (tp * pp * cp), "cp": cp, "ep": _size(cells, "ep"), "virtual_stages": chunks,
                  "micro_batch_size": whole(cells, "micro_batch"), "zero_stage": 1 if zero_stage is None else zero_stage,
                  "sequence_parallel": cells["sp"] == "1" if cells["sp"] in ("0", "1") else tp > 1,
                  "recompute": cells["recompute"] if cells["recompute"] in ("none", "selective", "full") else "unknown",
                  "schedule": "interleaved" if chunks > 1 else facts()["schedules"].get(named, named)}
    framework = cells.get("framework") or source.get("framework")
    if framework:
        body["framework"] = framework
    boundaries = re.search(r"modules = (\[[\d, ]+\])", cells["notes"])
    if "layer_modules" in source and boundaries:
        body["layers_per_stage"] = _layers_per_stage(json.loads(boundaries.group(1)), *source["layer_modules"])
    body |= source.get("strategy", {})
    return body


def _layers_per_stage(boundaries: list[int], first: int, end: int) -> list[int]:
    """Layers between stage boundaries that count all modules, of which `first` up to before `end` are layers."""
    layers = [min(high, end) - max(low, first) for low, high in zip(boundaries, boundaries[1:], strict=False)]
    if min(layers) < 1:
        raise NotStated("a stage without layers")
    return layers
