"""The request headers that steer waiting and caching: Prefer (RFC 7240) and Cache-Control."""
from dataclasses import dataclass

from starlette.requests import Request

from service.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """How long to wait for an answer, and what of the wish was honoured (the header Preference-Applied)."""

    wait_s: float
    applied: str | None


def waiting(request: Request, settings: Settings) -> Preference:
    """`wait=N` bounds the wait in seconds, `respond-async` alone asks for none; what cannot be read is ignored, as RFC 7240 has it."""
    wishes = {name.strip().lower(): value.strip().strip('"') for part in ",".join(request.headers.getlist("prefer")).split(",")
              for name, _, value in [part.partition(";")[0].partition("=")]}
    wait = wishes.get("wait", "")
    if wait.isdecimal() and wait.isascii() and len(wait) < 10:
        wait_s = min(int(wait), settings.max_wait_s)
        return Preference(wait_s=wait_s, applied=f"wait={wait_s:g}")
    if "respond-async" in wishes:
        return Preference(wait_s=0.0, applied="respond-async")
    return Preference(wait_s=settings.default_wait_s, applied=None)


def wants_fresh(request: Request) -> bool:
    """Whether earlier answers are unwelcome."""
    directives = ",".join(request.headers.getlist("cache-control")).lower()
    return any(d.strip() in ("no-cache", "no-store") for d in directives.split(","))
