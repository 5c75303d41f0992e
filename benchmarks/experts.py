"""How predictions of mixtures of experts compare with published figures: `python -m benchmarks.experts [--record FILE]`.

The runs are tests/accuracy/data/experts_published.toml; none was fitted to. Kernels of single layers: tests/accuracy/measured/moe_kernels.toml.
"""
import argparse
import json
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from solver.cost.estimate import estimate
from solver.cost.parameters import embedding_parameters, parameter_counts
from solver.domain.estimate import Estimate
from solver.domain.model import Architecture
from solver.domain.request import EstimateRequest
from solver.importers.request import problem_of

ACCURACY = Path(__file__).parents[1] / "tests" / "accuracy"
RUNS, KERNELS = ACCURACY / "data" / "experts_published.toml", ACCURACY / "measured" / "moe_kernels.toml"
_HEAD = """# Mixtures of experts

Written by `python -m benchmarks.experts --record docs/accuracy-experts.md`.

## Published runs of large models

None of these is in a fit: they are what the formulas say of models, devices and expert groups beyond the training runs of
[accuracy](accuracy.md), which know 128 experts. Two constants were set in sight of them, between what they and those runs would have: the host's time
per layer, and the rate of grouped products. The figures are the best that their authors print, often of layouts that they print only in part; what is
assumed stands below. Dispatch is half hidden where experts span nodes and stages are virtual, and not at all elsewhere.

| run | published | predicted | ratio | expected error | dispatch, of the step |
|---|--:|--:|--:|--:|--:|
"""
_KERNELS = """
## Single layers

Forward time of one layer's experts in serving kernels, with the grouped products that training is priced by and six figures per kernel: 805 rows of
aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0), 1 to 8,192 tokens, 8 to 256 experts, whole, cut over 8 ranks or spread over 8, even or power-law
routing. Left out: every shape as predicted by a fit without it. Overall {mean}. The A100 kernel runs without tuned tiles for most shapes.

| GPU | precision | kernel | rows | mean | median | 90th percentile | left out, mean |
|---|---|---|--:|--:|--:|--:|--:|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A published run and what is predicted of it, both in the unit of the publication, per GPU."""

    name: str
    published: float
    predicted: float
    unit: str
    answer: Estimate
    source: str
    assumed: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.experts")
    parser.add_argument("--record", type=Path, help="write the page to this file")
    given = parser.parse_args()
    text = "\n".join(page())
    print(text)
    if given.record:
        given.record.write_text(text + "\n")
        print(f"wrote {given.record}", file=sys.stderr)
    return 0


def page() -> Iterator[str]:
    found = list(runs())
    yield _HEAD.rstrip()
    for run in found:
        assert run.answer.time is not None and run.answer.step_time_s is not None
        dispatch = run.answer.time.expert_comm_s / run.answer.step_time_s
        yield (f"| {run.name} | {run.published:,.0f} {run.unit} | {run.predicted:,.0f} | {run.predicted / run.published:.2f} "
               f"| {_percent(run.answer.confidence.expected_error)} | {_percent(dispatch)} |")
    yield ""
    yield from (f"- **{run.name}**: {run.source}. Assumed: {run.assumed}." for run in found)
    kernels = tomllib.loads(KERNELS.read_text())["kernel"]
    mean = sum(k["mean"] * k["rows"] for k in kernels) / sum(k["rows"] for k in kernels)
    yield _KERNELS.rstrip().format(mean=_percent(mean))
    for k in kernels:
        errors = " | ".join(_percent(k[name]) for name in ("mean", "median", "p90", "left_out_mean"))
        yield f"| {k['gpu'].removesuffix('_sxm').upper()} | {k['kind']} | {k['name'].removeprefix('vllm_')} | {k['rows']} | {errors} |"


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def runs() -> Iterator[Run]:
    """Every published run, priced."""
    for given in tomllib.loads(RUNS.read_text())["run"]:
        request = TypeAdapter(EstimateRequest).validate_json(json.dumps(body_of(given)))
        problem = problem_of(request.model, request.cluster, request.workload, request.memory_margin)
        problem = replace(problem, model=replace(problem.model, mtp_layers=0))
        assert request.strategy is not None
        answer = estimate(problem, request.strategy)
        assert answer.tokens_per_s_per_gpu is not None
        per_token = flops_per_token(problem.model, given["workload"]["seq_len"], given.get("attention", "full"))
        tokens = answer.tokens_per_s_per_gpu
        in_tokens = "tokens_per_s" in given
        yield Run(name=given["name"], published=given["tokens_per_s"] if in_tokens else given["tflops"],
                  predicted=tokens if in_tokens else tokens * per_token / 1e12, unit="tokens/s" if in_tokens else "TFLOP/s", answer=answer,
                  source=given["source"], assumed=given["assumed"])


def body_of(given: dict[str, Any]) -> dict[str, Any]:
    """A run as the body of an estimate: Megatron-Core, ZeRO-1, bf16 gradients."""
    model = {"architecture": given["architecture"]} if "architecture" in given else {"preset": given["model"]}
    strategy = {"framework": "megatron", "zero_stage": 1, "schedule": "interleaved", **given["strategy"]}
    return {"model": model, "cluster": {"name": "published", "node_groups": [{"name": "g", **given["cluster"]}]},
            "workload": {"kind": "training", "gradient_precision": "bf16", **given["workload"]}, "strategy": strategy}


def flops_per_token(model: Architecture, seq_len: int, attention: str) -> float:
    """6 FLOPs per parameter that a token passes, the input embedding left out, and 6 a (d_qk + d_v) s of attention per layer; half where causal."""
    widths = model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim + model.mla.v_head_dim if model.mla is not None else 2 * model.head_width
    scores = 6.0 * model.num_layers * model.num_attention_heads * widths * seq_len * (0.5 if attention == "causal" else 1.0)
    return 6.0 * (parameter_counts(model).active_parameters - embedding_parameters(model)) + scores


if __name__ == "__main__":
    sys.exit(main())
