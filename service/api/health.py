"""Whether the service lives, and whether it can work."""
from fastapi import APIRouter
from starlette.responses import Response

from service.api.context import CoreOf
from service.jobs.render import json_bytes

router = APIRouter(tags=["operations"])


@router.get("/healthz", summary="Alive", response_class=Response)
async def healthz() -> Response:
    return Response(json_bytes({"status": "ok"}), media_type="application/json")


@router.get("/readyz", summary="Ready for requests: the database answers and a solver process is warm", response_class=Response)
def readyz(core: CoreOf) -> Response:
    checks = core.is_ready()
    ready = all(checks.values())
    return Response(json_bytes({"status": "ready" if ready else "not ready", "checks": checks}), status_code=200 if ready else 503,
                    media_type="application/json", headers={} if ready else {"Retry-After": "2"})
