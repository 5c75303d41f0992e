"""Numbers for monitoring, in Prometheus' text format."""
import time

from fastapi import APIRouter, FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.context import CoreOf

router = APIRouter(tags=["operations"])
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The counters of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("shardwright_http_requests", "Requests answered.", ("method", "route", "status"), registry=self.registry)
        self.seconds = Histogram("shardwright_http_request_seconds", "Time until the answer began.", ("method", "route"), buckets=BUCKETS_S,
                                 registry=self.registry)
        self.submissions = Counter("shardwright_plan_requests", "Plans asked for: hit, joined, queued.", ("how",), registry=self.registry)
        self.plans = Gauge("shardwright_plans", "Plans stored, by status.", ("status",), registry=self.registry)
        self.streams = Gauge("shardwright_event_streams", "Event streams open.", registry=self.registry)


class MetricsRecorder:
    """ASGI middleware that counts requests under the template of their route, so that ids do not become labels."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun_s = time.perf_counter()

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "unmatched")
                method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS") else "other"
                self.metrics.requests.labels(method, route, str(message["status"])).inc()
                self.metrics.seconds.labels(method, route).observe(time.perf_counter() - begun_s)
            await send(message)

        await self.app(scope, receive, send_counted)


def metrics_of(app: FastAPI) -> Metrics:
    metrics: Metrics = app.state.metrics
    return metrics


@router.get("/metrics", summary="Counters for monitoring", response_class=Response)
def read_metrics(request: Request, core: CoreOf) -> Response:
    metrics = metrics_of(request.app)
    for status, count in {"queued": 0, "running": 0, **core.plans.counts()}.items():
        metrics.plans.labels(status).set(count)
    return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)
