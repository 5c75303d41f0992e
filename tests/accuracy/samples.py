"""Rows and answers for the tests of this package: one small job, whose predictions are set by hand."""
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from solver.domain.degrees import Strategy
from solver.domain.estimate import Confidence, Estimate, Memory, ModelFacts, Risk, StageMemory
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from tests.accuracy.rows import columns

HEADER = columns()
GIVEN = {"id": "x-1", "source": "Somebody: table 1", "model_name": "gpt", "n_layers": "24", "hidden": "1024", "n_heads": "16", "seq_len": "2048",
         "gpu": "A100-SXM-80GB", "n_gpus": "16", "gpus_per_node": "8", "tp": "2", "pp": "2", "micro_batch": "1", "global_batch": "64",
         "precision": "bf16", "recompute": "none", "group_id": "g", "task": "pretrain"}


def cells(**changed: str) -> dict[str, str]:
    """A row with everything stated that must be; the rest is empty."""
    return dict.fromkeys(HEADER, "") | GIVEN | changed


def write_csv(path: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, HEADER)
        writer.writeheader()
        writer.writerows(rows)
    return path


def answer(step_time_s: float | None, risk: Risk = "safe", stages_gib: Sequence[float] = (40.0,)) -> Estimate:
    stages = tuple(StageMemory(capacity_gib=76.0, weights_gib=0.0, gradients_gib=0.0, optimizer_gib=0.0, activations_gib=0.0, logits_gib=0.0,
                               buffers_gib=gib, total_gib=gib) for gib in stages_gib)
    return Estimate(model=ModelFacts(parameters=1, active_parameters=1), feasible=True, fits_memory=risk != "over", risk=risk,
                    step_time_s=step_time_s, tokens_per_s=None, tokens_per_s_per_gpu=None, model_tflops_per_gpu=None, mfu=None, time=None,
                    memory=Memory(peak_gib=max(stages_gib), capacity_gib=76.0, stages=stages),
                    confidence=Confidence(basis="analytic", expected_error=0.1))


class Answers:
    """Prices by micro-batch size, as set by hand."""

    def __init__(self, **by_micro_batch: Estimate) -> None:
        self.by_micro_batch = {int(name.removeprefix("mb")): found for name, found in by_micro_batch.items()}

    def __call__(self, problem: Problem, layout: Strategy | Plan) -> Estimate:
        assert isinstance(layout, Strategy)
        return self.by_micro_batch[layout.micro_batch_size]
