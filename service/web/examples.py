"""The example requests that lie in the repository's `examples` folder; none where the service is installed without it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).resolve().parents[2] / "examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A body of POST /v1/plans with its name, and what it is in a line."""

    name: str
    body: dict[str, Any]

    @property
    def summary(self) -> str:
        work = self.body["workload"]
        groups = " + ".join(f"{g['nodes'] * g['gpus_per_node']} × {g['gpu']}" for g in self.body["cluster"]["node_groups"])
        return f"{groups}; sequences of {work['seq_len']:,}, batch {work['global_batch_size']:,}"


def examples() -> tuple[Example, ...]:
    """All examples, the one that shows most first."""
    found = [Example(name=p.stem, body=json.loads(p.read_text())) for p in sorted(DIRECTORY.glob("*.json"))]
    found = [e for e in found if {"model", "cluster", "workload"} <= e.body.keys()]
    return tuple(sorted(found, key=lambda e: (e.name != "llama-3.1-70b-h100-a100", e.name)))


def example(name: str) -> Example | None:
    return next((e for e in examples() if e.name == name), None)
