"""The pages' backend on the real service."""

import contextlib
import datetime
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from starlette.requests import Request

from service.jobs import exporting
from service.jobs.core import Core, NoLayout, NoSuchPlan
from service.jobs.render import json_bytes
from service.jobs.solve import plan_request
from service.jobs.submit import QueueFull
from service.web.backend import Catalogue, ExportOption, Json, Refused
from solver.domain.cluster import NodeGroup
from solver.domain.request import ModelSpec, PlanRequest
from solver.errors import Fault, InputError

HISTORY_READS = 20  # of 1,000 events each


@dataclass(frozen=True, slots=True)
class ServiceBackend:
    """Stateless: everything is in the application's core."""

    # parses a body as POST /v1/plans does, raising errors that carry `faults`; pages and API do not know each other, so it is handed in
    read: Callable[[bytes], PlanRequest]

    def check(self, request: Request, body: Json) -> None:
        with _refusals():
            core = _core(request)
            core.planner.problem(core.stored.expanded(self.read(_raw(body)), _owner(request)))

    def submit(self, request: Request, body: Json) -> str:
        raw = _raw(body)
        with _refusals():
            return _core(request).submitter.submit(raw, self.read(raw), _owner(request)).plan_id

    def plan(self, request: Request, plan_id: str) -> Json | None:
        core = _core(request)
        try:
            _, raw = core.resource(plan_id, _owner(request))
        except NoSuchPlan:
            return None
        resource = json.loads(raw)
        asked = plan_request().validate_json(core.plans.request(plan_id))
        resource["title"] = f"{_model_name(asked.model)} on {asked.cluster.name}"
        if resource["result"]:
            resource["request"] = {"cluster": {"node_groups": _groups(core, asked)}}
        return resource

    def history(self, request: Request, plan_id: str) -> Sequence[Json]:
        plans, after, found = _core(request).plans, 0, []
        for _ in range(HISTORY_READS):
            events = plans.events(plan_id, after)
            if not events:
                break
            found += [json.loads(body) for _, body in events]
            after = events[-1][0]
        return found

    def plans(self, request: Request, cursor: str | None, limit: int) -> tuple[Sequence[Json], str | None]:
        lines = _core(request).plans.page(_owner(request), cursor, limit + 1)
        page = [
            {
                "id": p.id,
                "status": p.status,
                "outcome": p.outcome,
                "step_time_s": p.step_time_s,
                "title": f"{p.model_name} on {p.cluster_name}",
                "created_at": f"{datetime.datetime.fromtimestamp(p.created_ms / 1000, datetime.UTC):%Y-%m-%d %H:%M} UTC",
            }
            for p in lines[:limit]
        ]
        return page, lines[limit - 1].id if len(lines) > limit else None

    def cancel(self, request: Request, plan_id: str) -> None:
        _core(request).plans.detach(plan_id, _owner(request))

    def exports(self, request: Request, plan_id: str) -> Sequence[ExportOption]:
        try:
            _, problem, plan = _core(request).layout(plan_id, _owner(request))
        except (NoSuchPlan, NoLayout):
            return ()
        return [
            ExportOption(target=target, available=not reasons, reasons=tuple(r.message for r in reasons),
                         instead=self._instead(request, plan_id, target) if reasons else None)
            for target, reasons in exporting.targets(problem, plan).items()
        ]

    def _instead(self, request: Request, plan_id: str, target: str) -> str | None:
        """The baseline that holds the best plan for a launcher, if it has one that the launcher's writer accepts."""
        name = f"launcher:{target}"
        try:
            _, problem, plan = _core(request).layout(plan_id, _owner(request), name)
        except (NoSuchPlan, NoLayout):
            return None
        return name if not exporting.targets(problem, plan)[target] else None

    def timeline(self, request: Request, plan_id: str) -> Json | None:
        try:
            _, problem, plan = _core(request).layout(plan_id, _owner(request))
        except (NoSuchPlan, NoLayout):
            return None
        trace = exporting.timeline(problem, plan)
        return json.loads(trace) if isinstance(trace, str | bytes) else trace

    def catalogue(self) -> Catalogue:
        return _catalogue()

    @contextlib.contextmanager
    def stream(self, request: Request) -> Iterator[Callable[[], bool]]:
        streams = request.app.state.streams
        if streams.open >= streams.most:
            raise Refused(Fault(pointer="", message=f"{streams.most} event streams are open, which is the most"), status=503)
        with streams.one():
            yield streams.stopping.is_set


def _core(request: Request) -> Core:
    core: Core = request.app.state.core
    return core


def _owner(request: Request) -> str:
    return str(request.state.owner)


def _raw(body: Json) -> bytes:
    return json.dumps(body).encode()


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except QueueFull as e:
        raise Refused(Fault(pointer="", message=str(e), legal="try again in a while"), status=503) from e
    except Exception as e:  # whatever reads a body may refuse it, as long as it says where
        if not getattr(e, "faults", ()):
            raise
        raise Refused(*e.faults) from e  # type: ignore[attr-defined]


def _model_name(model: ModelSpec) -> str:
    if model.preset is not None:
        return model.preset
    if model.architecture is not None:
        return model.architecture.name
    config = model.hf_config or {}
    return str(config.get("_name_or_path") or config.get("model_type") or "model")[:80]


def _groups(core: Core, asked: PlanRequest) -> list[dict[str, Any]]:
    """The node groups with everything filled in; as they were asked for where the catalogue has lost a name since."""
    try:
        groups: Sequence[NodeGroup] = core.planner.problem(asked).cluster.node_groups
    except InputError:
        return [json.loads(json_bytes(g)) for g in asked.cluster.node_groups]
    return [
        {"name": g.name, "gpu": g.device.name, "nodes": g.nodes, "gpus_per_node": g.gpus_per_node, "unavailable_gpus": list(g.unavailable_gpus)}
        for g in groups
    ]


@functools.cache
def _catalogue() -> Catalogue:
    from solver.catalog import loader

    return Catalogue(
        devices=[asdict(d) for d in loader.devices()],
        links=[asdict(d) for d in loader.links()],
        version=loader.CATALOGUE_VERSION,
        presets=[
            {"name": p.name, "source": p.source, "parameters": p.published_parameters, "architecture": asdict(p.architecture)}
            for p in loader.presets()
        ],
    )
