"""The playground: one static page that talks to `/ws`, so that a person can read, hear and time a stream.

The files are named here one by one and read once at start; nothing else of the directory is ever served.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response

# No source but the service itself, no inline script or style. Trusted Types makes `innerHTML` and its kin throw, so
# model output can only ever become text.
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)

HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

PAGE = "page.html"
ASSETS = {
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "access.js": "text/javascript; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "capture.js": "text/javascript; charset=utf-8",
    "connection.js": "text/javascript; charset=utf-8",
    "conversation.js": "text/javascript; charset=utf-8",
    "ear.js": "text/javascript; charset=utf-8",
    "microphone.js": "text/javascript; charset=utf-8",
    "models.js": "text/javascript; charset=utf-8",
    "pickers.js": "text/javascript; charset=utf-8",
    "player.js": "text/javascript; charset=utf-8",
    "plot.js": "text/javascript; charset=utf-8",
    "session.js": "text/javascript; charset=utf-8",
    "talk.js": "text/javascript; charset=utf-8",
    "timings.js": "text/javascript; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str


def _read(name: str, media_type: str) -> _File:
    content = (Path(__file__).parent / name).read_bytes()
    return _File(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


_page = _read(PAGE, "text/html; charset=utf-8")
_assets = {name: _read(name, media_type) for name, media_type in ASSETS.items()}

router = APIRouter(include_in_schema=False)


@router.api_route("/playground", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    """The page."""
    return _answer(request, _page)


@router.api_route("/playground/{name}", methods=["GET", "HEAD"])
async def asset(request: Request, name: str) -> Response:
    """A style sheet, script or picture of the page."""
    file = _assets.get(name)
    if file is None:
        return Response(
            f"The playground has no file {name!r}.", status_code=404, media_type="text/plain", headers=HEADERS
        )
    return _answer(request, file)


def _answer(request: Request, file: _File) -> Response:
    headers = {**HEADERS, "etag": file.etag}
    if _holds(request.headers.get("if-none-match", ""), file.etag):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


def _holds(if_none_match: str, etag: str) -> bool:
    # A proxy that compresses turns our strong tag into a weak one; the comparison of RFC 9110 13.1.2 ignores that.
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or etag in tags
