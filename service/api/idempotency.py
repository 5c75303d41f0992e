"""The request header Idempotency-Key: a request that is sent twice is carried out once."""
import hashlib
import re
from collections.abc import Awaitable, Callable

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from service.api.errors import Refused, document, response
from service.db.idempotency import StoredAnswer
from service.jobs.core import Core
from service.jobs.render import json_bytes

KEY = re.compile(r"[\x21-\x7e]{1,255}")
KEPT_HEADERS = ("location", "content-type", "cache-status", "retry-after", "preference-applied")
SPARE_S = 60.0


async def once(request: Request, core: Core, owner: str, route: str, raw: bytes, act: Callable[[], Awaitable[Response]]) -> Response:
    """Carry out `act`, or give the answer that the first request with this key got. Keys are scoped to owner and route and kept 24 hours."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return await act()
    if not KEY.fullmatch(key):
        raise Refused(400, "bad-idempotency-key", "Idempotency-Key is not acceptable; legal: 1 to 255 printable ASCII characters without spaces")
    digest = hashlib.sha256(raw).hexdigest()
    table, patience_s = core.idempotency, core.settings.max_wait_s + core.settings.body_timeout_s + SPARE_S
    earlier = await run_in_threadpool(table.claim, owner, route, key, digest, patience_s)
    if earlier is not None:
        return _replay(earlier, digest)
    try:
        answer = await act()
    except Exception as error:
        answer = response(document(error), getattr(error, "headers", None))
        if answer.status_code >= 500:
            await run_in_threadpool(table.release, owner, route, key)
            raise
    except BaseException:                                   # the client went away, or the service is stopping
        table.release(owner, route, key)
        raise
    headers = json_bytes({name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers})
    await run_in_threadpool(table.keep, owner, route, key, answer.status_code, headers, bytes(answer.body))
    return answer


def _replay(earlier: StoredAnswer, digest: str) -> Response:
    if earlier.request_hash != digest:
        raise Refused(422, "idempotency-key-reused", "this Idempotency-Key came with another body before; legal: a new key for a new request")
    if earlier.status is None:
        raise Refused(409, "idempotency-key-busy", "the first request with this Idempotency-Key is still being answered", {"Retry-After": "1"})
    return Response(earlier.body, status_code=earlier.status, headers=orjson.loads(earlier.headers or b"{}") | {"Idempotent-Replayed": "true"})
