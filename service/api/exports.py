"""Which launchers can run a plan, and their files."""
import io
import zipfile
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from service.api.context import CoreOf, Owner
from service.api.errors import Refused
from service.api.plans import PlanId
from service.api.schema import described
from service.jobs import exporting
from service.jobs.render import json_bytes

router = APIRouter(prefix="/v1", tags=["exports"])
Baseline = Annotated[str | None, Query(max_length=300, description="Name of a baseline of the answer, to export its plan instead")]
Target = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$", description="Name of an exporter")]
FIRST_DATE = (1980, 1, 1, 0, 0, 0)                          # the same files give the same archive


@router.get("/plans/{plan_id}/exports", summary="Which launchers can run this plan, and why not", response_class=Response,
            openapi_extra=described(None, {200: "ExportList"}))
def list_exports(plan_id: PlanId, core: CoreOf, owner: Owner, baseline: Baseline = None) -> Response:
    _, problem, plan = core.layout(plan_id, owner, baseline)
    targets = [{"target": t, "available": not reasons, "reasons": reasons} for t, reasons in exporting.targets(problem, plan).items()]
    return Response(json_bytes({"targets": targets}), media_type="application/json")


@router.get("/plans/{plan_id}/exports/{target}", summary="The files of one launcher: one as it is, several as a zip", response_class=Response,
            openapi_extra=described(None, {200: "file"}))
def read_export(plan_id: PlanId, target: Target, core: CoreOf, owner: Owner, baseline: Baseline = None) -> Response:
    if target not in exporting.names():
        raise Refused(404, "no-such-export", f"{target[:80]!r} is no export target; legal: {', '.join(exporting.names())}")
    _, problem, plan = core.layout(plan_id, owner, baseline)
    files = exporting.files(target, problem, plan)
    if len(files) == 1:
        return _download(files[0].text.encode(), files[0].media_type, files[0].name)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as z:
        for f in files:
            z.writestr(zipfile.ZipInfo(f.name, FIRST_DATE), f.text)
    return _download(archive.getvalue(), "application/zip", f"{target}-{plan_id}.zip")


def _download(content: bytes, media_type: str, name: str) -> Response:
    return Response(content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})
