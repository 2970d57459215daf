"""What people and machines read about the API: the OpenAPI document, and a page that is made from it.

The page loads nothing from anywhere: no script, no style sheet, no font.
"""

from __future__ import annotations

from functools import lru_cache
from html import escape
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, get

from servo.api.openapi import document_of, operation

__all__ = ["docs", "openapi_json"]

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1b1f24}
h2{margin-top:2.5rem;border-bottom:1px solid #d0d7de}details{border:1px solid #d0d7de;border-radius:6px;margin:.4rem 0}
summary{cursor:pointer;padding:.4rem .7rem}details>div{padding:0 1rem 1rem}code,pre{font:13px ui-monospace,monospace}
pre{background:#f6f8fa;padding:.7rem;overflow:auto}.m{display:inline-block;width:4.5rem;font-weight:600}
table{border-collapse:collapse}td,th{text-align:left;padding:.15rem .8rem .15rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}pre{background:#161b22}}
"""


@get("/schema/openapi.json", opt=operation("public", shape="html", media_type="application/json"))
async def openapi_json(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The OpenAPI 3.1 document of this API."""
    return Response(_encoded(request.app), media_type="application/json")


@get("/docs", opt=operation("public", shape="html", media_type="text/html"))
async def docs(request: Request[Any, Any, Any]) -> Response[bytes]:
    """This page."""
    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(_page(request.app), media_type="text/html", headers=headers)


@lru_cache(maxsize=8)
def _document(app: Litestar) -> dict[str, Any]:
    try:
        found = version("servo")
    except PackageNotFoundError:
        found = "0"
    return document_of(app, version=found)


@lru_cache(maxsize=8)
def _encoded(app: Litestar) -> bytes:
    return msgspec.json.encode(_document(app))


@lru_cache(maxsize=8)
def _page(app: Litestar) -> bytes:
    document = _document(app)
    groups: dict[str, list[str]] = {}
    for path, entry in document["paths"].items():
        for method, described in entry.items():
            groups.setdefault(next(iter(described["tags"]), "server"), []).append(_operation(path, method, described))
    info = document["info"]
    parts = [f"<h2>{escape(name)}</h2>{''.join(found)}" for name, found in sorted(groups.items())]
    shapes = "".join(
        f"<details><summary><code>{escape(name)}</code></summary><div>{_json(shape)}</div></details>"
        for name, shape in sorted(document["components"]["schemas"].items())
    )
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><pre>{escape(info['description'])}</pre>"
        f"<p><a href='/schema/openapi.json'>openapi.json</a></p>{''.join(parts)}<h2>schemas</h2>{shapes}"
    ).encode()


def _operation(path: str, method: str, described: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}</td>"
        f"<td>{escape(one.get('description', ''))}</td></tr>"
        for one in described["parameters"]
    )
    body = ""
    if "requestBody" in described:
        content = described["requestBody"]["content"]["application/json"]
        body = f"<p>Body</p>{_json(content.get('example') or content['schema'])}"
    answers = "".join(
        f"<tr><td><code>{escape(status)}</code></td><td>{escape(one['description'])}</td></tr>"
        for status, one in described["responses"].items()
    )
    return (
        f"<details><summary><span class='m'>{escape(method.upper())}</span><code>{escape(path)}</code> "
        f"{escape(described['summary'])}</summary><div><p>{escape(described['description'])}</p>"
        f"<table>{rows}</table>{body}<p>Answers</p><table>{answers}</table></div></details>"
    )


def _json(value: Any) -> str:
    return f"<pre>{escape(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())}</pre>"
