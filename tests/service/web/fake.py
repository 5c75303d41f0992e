"""A service behind the pages that needs no solver: plans whose numbers are plausible, in every state that a plan can have."""

import contextlib
import copy
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

from service.web import mount
from service.web.backend import Catalogue, ExportOption, Refused
from service.web.examples import example
from solver.domain.estimate import Confidence, Estimate, Memory, ModelFacts, Reason, StageMemory, TimeParts
from solver.domain.plan import DeviceSlice, Pipeline, Plan, Stage, Versions
from solver.domain.request import PlanRequest
from solver.errors import Fault
from solver.search.result import Alternative, Baseline, Progress, Rejected, Relaxation, SearchReport

DONE = "0192f3a1c0de0123456789abcdef0001"
RUNNING = "0192f3a1c0de0123456789abcdef0002"
INFEASIBLE = "0192f3a1c0de0123456789abcdef0003"
FAILED = "0192f3a1c0de0123456789abcdef0004"
CANCELLED = "0192f3a1c0de0123456789abcdef0005"
LARGE = "0192f3a1c0de0123456789abcdef0006"
SEARCH_S = 2.5
REQUEST = TypeAdapter(PlanRequest)


def stage(group: str, nodes: Sequence[int], layers: tuple[int, int], tp: int, **more: Any) -> Stage:
    """A stage on whole nodes of 8 GPUs."""
    return Stage(
        layers=(layers,),
        tp=tp,
        dp=8 * len(nodes) // tp,
        devices=tuple(DeviceSlice(node_group=group, node=n, gpus=tuple(range(8))) for n in nodes),
        **more,
    )


def memory_of(capacity: float, share: float) -> StageMemory:
    total = capacity * share
    parts = {"weights_gib": 0.22, "gradients_gib": 0.21, "optimizer_gib": 0.19, "activations_gib": 0.27, "logits_gib": 0.03, "buffers_gib": 0.08}
    return StageMemory(capacity_gib=capacity, total_gib=total, **{k: total * v for k, v in parts.items()})


def estimate(step_s: float, stages: int, gpus: int) -> Estimate:
    shares = {
        "compute_s": 0.62,
        "recompute_s": 0.04,
        "tensor_comm_s": 0.11,
        "pipeline_comm_s": 0.02,
        "data_comm_s": 0.05,
        "bubble_s": 0.13,
        "optimizer_s": 0.03,
    }
    memory = tuple(memory_of(72.4, 0.93 - 0.07 * (i % 4)) for i in range(stages))
    tokens = 512 * 8192 / step_s
    return Estimate(
        model=ModelFacts(parameters=70_553_706_496, active_parameters=70_553_706_496),
        feasible=True,
        fits_memory=True,
        risk="risky",
        step_time_s=step_s,
        tokens_per_s=tokens,
        tokens_per_s_per_gpu=tokens / gpus,
        model_tflops_per_gpu=288.4,
        mfu=0.4371,
        gpus=gpus,
        price_per_hour=201.6,
        memory=Memory(peak_gib=memory[0].total_gib, capacity_gib=72.4, stages=memory),
        time=TimeParts(**{k: v * step_s for k, v in shares.items()}),
        confidence=Confidence(basis="analytic", expected_error=0.1),
    )


def mixed_plan() -> Plan:
    """Two H100 and two A100 stages in each of two pipelines, layers uneven."""

    def pipeline(i: int) -> Pipeline:
        h, a = 2 * i, 4 * i
        return Pipeline(
            micro_batches=32,
            stages=(
                stage("a100", [a, a + 1], (0, 15), 4),
                stage("h100", [h], (16, 39), 4),
                stage("h100", [h + 1], (40, 63), 4, recompute="selective"),
                stage("a100", [a + 2, a + 3], (64, 79), 4),
            ),
        )

    return Plan(
        pipelines=(pipeline(0), pipeline(1)),
        micro_batch_size=8,
        sequence_parallel=True,
        framework="megatron",
        versions=Versions(cost_model="1", catalogue="f3a9c01b77de"),
    )


def large_plan(pipelines: int = 128, pp: int = 16) -> Plan:
    """16,384 GPUs: node n of 2,048 holds stage n % pp of pipeline n // pp."""
    return Plan(
        micro_batch_size=1,
        pipelines=tuple(
            Pipeline(micro_batches=16, stages=tuple(stage("h100", [p * pp + s], (5 * s, 5 * s + 4), 8) for s in range(pp))) for p in range(pipelines)
        ),
    )


def body_of_result(plan: Plan, step_s: float) -> dict[str, Any]:
    other = Plan(pipelines=(Pipeline(micro_batches=64, stages=(stage("h100", [0, 1, 2, 3], (0, 79), 8, recompute="full"),)),), micro_batch_size=8)
    stages = len(plan.pipelines[0].stages)
    assumptions = [
        {"pointer": "/cluster/node_groups/0/intra_node", "message": "h100 nodes join their GPUs by NVLink 4 at 450 GB/s per GPU", "alternatives": []},
        {
            "pointer": "/cluster/node_groups/1/gpu",
            "message": "'a100' names several devices; A100-SXM4-80GB is taken",
            "alternatives": ["A100-SXM4-40GB"],
        },
    ]
    found = {
        "outcome": "optimal",
        "plan": plan,
        "predicted": estimate(step_s, stages, plan.gpus),
        "bound": {"step_time_s": step_s},
        "gap": 0.0,
        "alternatives": [
            Alternative(
                plan=other, predicted=estimate(step_s * 1.08, 1, 32), why_not_best="8.0 % slower: full recompute costs 2.1 s and the A100s stay idle."
            )
        ],
        "rejected": [
            Rejected(code="memory.over", count=412, example="TP 1 on A100-SXM4-80GB: 141.2 GiB of 72.4 GiB"),
            Rejected(code="heads.divide", count=96, example="TP 16: 64 heads, but 8 KV heads do not divide"),
        ],
        "baselines": [
            Baseline(name="only:h100", step_time_s=step_s * 1.31),
            Baseline(name="only:a100", step_time_s=step_s * 1.74),
            Baseline(name="uniform", step_time_s=step_s * 1.22),
        ],
        "reasons": [],
        "relaxation": None,
        "assumptions": assumptions,
        "search": SearchReport(engine="cp_sat", candidates=1846, pruned=1790, solved=56, solver_calls=71, wall_s=3.62, stopped="proof"),
    }
    return plain(found)


def infeasible_result() -> dict[str, Any]:
    return plain(
        {
            "outcome": "infeasible",
            "plan": None,
            "predicted": None,
            "bound": {"step_time_s": None},
            "gap": None,
            "alternatives": [],
            "rejected": [],
            "baselines": [],
            "reasons": [
                Reason(
                    code="memory.over",
                    message="The smallest stage possible needs 131.0 GiB of the 22.1 GiB that an RTX 4090 leaves.",
                    fix="Use at least 32 GPUs.",
                )
            ],
            "relaxation": Relaxation(change="With 4 nodes instead of 1 it fits.", step_time_s=88.2),
            "assumptions": [],
            "search": SearchReport(engine="cp_sat", candidates=24, pruned=0, solved=24, solver_calls=24, wall_s=0.4, stopped="proof"),
        }
    )


def trace_of(stages: int, micro_batches: int) -> dict[str, Any]:
    events = []
    for s in range(stages):
        for m in range(micro_batches):
            back = (stages + micro_batches) * 4e4 + (stages - 1 - s + m) * 8e4
            events.append(
                {"name": f"F{m}", "cat": "forward", "ph": "X", "pid": 0, "tid": s, "ts": (s + m) * 4e4, "dur": 4e4, "args": {"micro_batch": m}}
            )
            events.append({"name": f"B{m}", "cat": "backward", "ph": "X", "pid": 0, "tid": s, "ts": back, "dur": 8e4, "args": {"micro_batch": m}})
    return {"traceEvents": events}


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=asdict))


def progress_at(elapsed_s: float) -> dict[str, Any]:
    share = min(1.0, elapsed_s / SEARCH_S)
    incumbent = 24.1 + 9 * (1 - share) ** 2 if share > 0.15 else None
    bound = 24.1 - 7 * (1 - share)
    return asdict(
        Progress(
            phase="search",
            incumbent_s=incumbent,
            bound_s=bound,
            gap=1 - bound / incumbent if incumbent else None,
            candidates=1846,
            pruned=int(1790 * share),
            solved=int(56 * share),
            elapsed_s=elapsed_s,
        )
    )


class FakeBackend:
    """Plans by id; a submitted one runs for `SEARCH_S` seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        shown = example("llama-3.1-70b-h100-a100")
        assert shown is not None
        self.request = shown.body
        large = copy.deepcopy(self.request)
        large["cluster"] = {"name": "large", "node_groups": [{"name": "h100", "gpu": "H100-SXM5-80GB", "nodes": 2048, "gpus_per_node": 8}]}
        title = "llama-3.1-70b on h100-a100"
        self.fixed: dict[str, dict[str, Any]] = {
            DONE: {"status": "succeeded", "result": body_of_result(mixed_plan(), 24.1), "request": self.request, "title": title},
            LARGE: {"status": "succeeded", "result": body_of_result(large_plan(), 1.9), "request": large, "title": "llama-3.1-70b on large"},
            INFEASIBLE: {"status": "succeeded", "result": infeasible_result(), "request": self.request, "title": "llama-3.1-70b on one-4090"},
            FAILED: {
                "status": "failed",
                "result": None,
                "error": {"detail": "The solver process died 3 times; the machine may be out of memory."},
                "title": title,
            },
            CANCELLED: {"status": "cancelled", "result": None, "title": title},
        }
        self.began: dict[str, float] = {}
        self.cancelled: set[str] = set()
        self.bodies: list[Mapping[str, Any]] = []
        self.endless = False

    def check(self, request: Request, body: Mapping[str, Any]) -> None:
        try:
            parsed = REQUEST.validate_json(json.dumps(body))
        except ValidationError as e:
            raise Refused(
                *(
                    Fault(pointer="".join(f"/{p}" for p in x["loc"] if p != "TrainingWorkload"), message=x["msg"])
                    for x in e.errors()
                    if "ServingWorkload" not in x["loc"] and x["type"] != "too_short"
                )
            ) from e
        known = {d["name"] for d in self.catalogue().devices}
        wrong = [
            Fault(pointer=f"/cluster/node_groups/{i}/gpu", message=f"{g.gpu!r} is not in the catalogue", legal="H100-SXM5-80GB, A100-SXM4-80GB")
            for i, g in enumerate(parsed.cluster.node_groups)
            if g.gpu not in known
        ]
        if wrong:
            raise Refused(*wrong)

    def submit(self, request: Request, body: Mapping[str, Any]) -> str:
        self.check(request, body)
        with self._lock:
            self.bodies.append(body)
            plan_id = f"0192f3a1c0de0123456789abcdef1{len(self.bodies):03d}"
            self.began[plan_id] = time.monotonic()
        return plan_id

    def plan(self, request: Request, plan_id: str) -> Mapping[str, Any] | None:
        if plan_id in self.fixed:
            return {"id": plan_id, "progress": progress_at(SEARCH_S), **self.fixed[plan_id]}
        if plan_id == RUNNING:
            self.began.setdefault(plan_id, time.monotonic())
        if plan_id not in self.began:
            return None
        elapsed = time.monotonic() - self.began[plan_id]
        common = {"id": plan_id, "title": "llama-3.1-70b on h100-a100", "request": self.request}
        if plan_id in self.cancelled:
            return {**common, "status": "cancelled", "result": None, "progress": progress_at(1.0)}
        if elapsed < SEARCH_S or self.endless or plan_id == RUNNING:
            return {**common, "status": "running", "result": None, "progress": progress_at(round(min(elapsed, 0.8 * SEARCH_S), 1))}
        return {**common, "status": "succeeded", "progress": progress_at(SEARCH_S), "result": body_of_result(mixed_plan(), 24.1)}

    def history(self, request: Request, plan_id: str) -> Sequence[Mapping[str, Any]]:
        now = self.plan(request, plan_id)
        end = now["progress"]["elapsed_s"] if now else 0.0
        return [progress_at(i / 10) for i in range(int(end * 10) + 1)]

    def plans(self, request: Request, cursor: str | None, limit: int) -> tuple[Sequence[Mapping[str, Any]], str | None]:
        found = [
            {
                "id": i,
                "status": p["status"],
                "title": p.get("title"),
                "outcome": (p["result"] or {}).get("outcome"),
                "step_time_s": ((p["result"] or {}).get("predicted") or {}).get("step_time_s"),
                "created_at": "2025-11-30 16:45",
            }
            for i, p in self.fixed.items()
        ]
        return found, None

    def cancel(self, request: Request, plan_id: str) -> None:
        self.cancelled.add(plan_id)

    def exports(self, request: Request, plan_id: str) -> Sequence[ExportOption]:
        return [
            ExportOption(target="megatron", available=True),
            ExportOption(target="json", available=True),
            ExportOption(target="deepspeed", available=False, reasons=("stages differ in width, which DeepSpeed cannot express",)),
        ]

    def timeline(self, request: Request, plan_id: str) -> Mapping[str, Any] | None:
        return trace_of(4, 16)

    @contextlib.contextmanager
    def stream(self, request: Request) -> Iterator[Callable[[], bool]]:
        yield lambda: False

    def catalogue(self) -> Catalogue:
        from solver.catalog.loader import CATALOGUE_VERSION, devices, links, presets

        return Catalogue(
            devices=[asdict(d) for d in devices()],
            links=[asdict(d) for d in links()],
            presets=[
                {"name": p.name, "source": p.source, "parameters": p.published_parameters, "architecture": asdict(p.architecture)} for p in presets()
            ],
            version=CATALOGUE_VERSION,
        )


def fake_app(backend: FakeBackend | None = None) -> FastAPI:
    """The pages on a fake service, with the downloads that they link to."""
    app = FastAPI()
    mount(app, backend or FakeBackend())

    @app.get("/v1/plans/{plan_id}/exports/{target}")
    def export(plan_id: str, target: str) -> PlainTextResponse:
        return PlainTextResponse("#!/bin/sh\ntorchrun pretrain_gpt.py\n", headers={"Content-Disposition": 'attachment; filename="launch.sh"'})

    @app.get("/v1/plans/{plan_id}")
    def resource(plan_id: str) -> JSONResponse:
        return JSONResponse({"id": plan_id})

    return app
