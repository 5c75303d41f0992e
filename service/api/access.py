"""Who may ask, and from where: Host and Origin checks, API keys, and the headers that go with every answer."""
import re
import base64
import binascii
import hmac

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.errors import Refused, document, response
from service.settings import Settings, key_hash

OPEN_PATHS = ("/healthz", "/readyz")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OWNER_LENGTH = 32
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none'; base-uri 'none'; "
                               "form-action 'self'; frame-ancestors 'none'",
}


class AccessGuard:
    """ASGI middleware: refuses what comes through a foreign name, a foreign page, or without a key that is needed."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check_host(scope)
            self._check_origin(scope)
            scope.setdefault("state", {})["owner"] = self._owner(scope)
        except Refused as refusal:
            await response(document(refusal), refusal.headers)(scope, receive, send_secured)
            return
        await self.app(scope, receive, send_secured)

    def _check_host(self, scope: Scope) -> None:
        host = Headers(scope=scope).get("host", "")
        if "*" not in self.settings.hosts and _without_port(host) not in self.settings.hosts:
            raise Refused(421, "unknown-host", f"the Host header says {host[:253]!r}; legal: {', '.join(sorted(self.settings.hosts))}, "
                                               "and what SHARDWRIGHT_ALLOWED_HOSTS lists")

    def _check_origin(self, scope: Scope) -> None:
        """A page of another site may not send anything on behalf of whoever is looking at it."""
        if scope["method"] in SAFE_METHODS:
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        own = origin is not None and origin.partition("://")[2].lower() == headers.get("host", "").lower()
        if origin is not None and not own and origin not in self.settings.allowed_origins:
            raise Refused(403, "foreign-origin", f"the request comes from a page of {origin[:253]!r}; legal: pages of this service, "
                                                 "and what SHARDWRIGHT_ALLOWED_ORIGINS lists")
        if origin is None and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Refused(403, "foreign-origin", "the request comes from a page of another site; legal: pages of this service")

    def _owner(self, scope: Scope) -> str:
        hashes = self.settings.key_hashes
        if not hashes or scope["path"] in OPEN_PATHS:
            return ""
        digest = key_hash(_key(Headers(scope=scope).get("authorization", "")))
        matches = [known for known in hashes if hmac.compare_digest(known, digest)]
        if not matches:
            raise Refused(401, "key-needed", "this service needs an API key; legal: the header Authorization: Bearer KEY",
                          {"WWW-Authenticate": 'Bearer realm="shardwright", Basic realm="shardwright", charset="UTF-8"'})
        return matches[0][:OWNER_LENGTH]


def _without_port(host: str) -> str:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(:[0-9]{1,5})?", host)
    return found[1].lower() if found else ""               # anything else names no host that may be asked for


def _key(authorization: str) -> str:
    """The key: as a bearer token, or as the password that a browser asks for."""
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return credentials.strip() if scheme.lower() == "bearer" else ""


def owner_of(request: Request) -> str:
    """Whose request this is: empty without keys, otherwise a digest of the key."""
    return str(request.state.owner)
