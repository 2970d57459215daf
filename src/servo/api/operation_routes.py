"""The HTTP routes of the table of operations: one loop makes them all."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from types import UnionType
from typing import Any, get_args

import msgspec
from litestar.handlers import HTTPRouteHandler

from servo.api.direct_routes import direct_route
from servo.api.inputs import Keyed, Listing, Reading
from servo.api.openapi import OPERATION, ROLE
from servo.api.openapi import Operation as Described
from servo.api.request_context import Answer, RequestContext, plain
from servo.api.threads import Shares
from servo.operations.handling import Found, lister_of
from servo.operations.operation import (
    Change,
    ListQuestion,
    Operation,
    Question,
    Route,
    answer_type,
    fields,
    is_asset,
    requires_body,
)
from servo.operations.table import OPERATIONS
from servo.runtime.performer import Performer
from servo.status.state import State

__all__ = ["operation_routes"]

_PARAMETER = re.compile(r"\{(\w+)\}")


def operation_routes() -> list[HTTPRouteHandler]:
    """A route for each operation; of one about an asset two, as its name is one segment of the path or two."""
    return [_route(kind, path) for kind in OPERATIONS for path in _paths(kind)]


def _route(kind: type[Operation[Any]], path: str) -> HTTPRouteHandler:
    contract = kind.contract

    async def answer(context: RequestContext) -> Answer:
        return await _answered(kind, context)

    answer.__doc__, answer.__name__ = kind.__doc__, kind.__name__
    opt = {ROLE: contract.role, OPERATION: _described(kind)}
    return direct_route(contract.route.method, path, answer, tag=contract.noun, opt=opt)


async def _answered(kind: type[Operation[Any]], context: RequestContext) -> Answer:
    named = _named(kind, context)
    performer, shares = Performer(context.project, context.server.user_code), context.server.shares
    if issubclass(kind, Change):
        request, key = await _change(kind, context, named)
        async with _share(kind, request, shares):
            return await context.perform(performer, request, key)
    if kind.contract.route.has_body:
        question = _request(kind, await context.body(body_type(kind)), named)
        return plain(await context.threads.answer(lambda: performer.ask(question)))
    asked: Any = context.query(query_type(kind))
    request = _request(kind, asked, named)
    async with _share(kind, request, shares):
        if not issubclass(kind, ListQuestion):
            return await context.one(
                asked,
                lambda state: performer.ask(request, state=state),
                out_of_turn=kind.contract.slow,
            )
        lister = lister_of(kind)

        def find(state: State, after: Any) -> Found[Any]:
            return performer.find(request, after, state=state)

        return await context.page(asked, find, place=lister.place, kind=lister.place_type, item=lister.show)


async def _change(
    kind: type[Change[Any]], context: RequestContext, named: dict[str, str]
) -> tuple[Change[Any], str | None]:
    """The request, and its key."""
    if kind.contract.route.has_body:
        sent: Any = await context.body(body_type(kind), required=requires_body(kind))
    else:
        sent = context.query(query_type(kind))
    request: Any = _request(kind, sent, named)
    keyed = sent if isinstance(sent, Keyed) else Keyed()
    if kind.contract.key == "required" and not request.needs_no_key:
        return request, context.require_key(keyed)
    return request, None if kind.contract.key == "none" else context.key(keyed)


@asynccontextmanager
async def _share(kind: type[Operation[Any]], request: Operation[Any], shares: Shares) -> AsyncIterator[None]:
    """A place among the requests of this kind, where these are bounded; with a name in the path, among those for it."""
    share = kind.contract.shares
    if share is None:
        yield
        return
    parameters = kind.contract.route.parameters
    async with shares.place(share, getattr(request, parameters[0]) if parameters else ""):
        yield


# ── what a request consists of ───────────────────────────────────────────────────────────────────────────────────


def _named(kind: type[Operation[Any]], context: RequestContext) -> dict[str, str]:
    """The fields that are in the path."""
    found = {name: str(value) for name, value in context.request.path_params.items()}
    for name in kind.contract.route.parameters:
        if name not in found:  # an asset's name, in two segments
            found[name] = f"{found.pop('namespace')}/{found.pop('name')}"
    return found


def _request(kind: type[Operation[Any]], sent: Any, named: dict[str, str]) -> Any:
    rest = {name: getattr(sent, name) for name in fields(kind) if name not in named}
    return kind(**named, **rest)


def body_type(kind: type[Operation[Any]]) -> type[msgspec.Struct]:
    """The fields of an operation that travel in the body, and the key that may be there too."""
    if kind not in _BODIES:
        _BODIES[kind] = _part(kind, kind.__name__, () if kind.contract.key == "none" else (Keyed,))
    return _BODIES[kind]


def query_type(kind: type[Operation[Any]]) -> type[msgspec.Struct]:
    """The fields of an operation that are behind the question mark, and which state is read."""
    if kind not in _QUERIES:
        bases = (Reading,) if issubclass(kind, Question) else (Listing,) if issubclass(kind, ListQuestion) else ()
        _QUERIES[kind] = _part(kind, f"{kind.__name__}Query", bases)
    return _QUERIES[kind]


_BODIES: dict[type[Any], type[msgspec.Struct]] = {}
_QUERIES: dict[type[Any], type[msgspec.Struct]] = {}


def _part(kind: type[Operation[Any]], name: str, bases: tuple[type, ...]) -> type[msgspec.Struct]:
    info = {field.name: field for field in msgspec.structs.fields(kind)}
    parts: list[Any] = []
    for field, hint in fields(kind).items():
        if field in kind.contract.route.parameters:
            continue
        known = info[field]
        if known.required:
            parts.append((field, hint))
        elif known.default_factory is not msgspec.NODEFAULT:
            parts.append((field, hint, msgspec.field(default_factory=known.default_factory)))
        else:
            parts.append((field, hint, known.default))
    return msgspec.defstruct(
        name,
        parts,
        bases=bases or None,
        namespace={"__doc__": kind.__doc__},
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


def _paths(kind: type[Operation[Any]]) -> Iterator[str]:
    """The paths of an operation as Litestar writes them."""
    route: Route = kind.contract.route
    yield _PARAMETER.sub(r"{\1:str}", route.path)
    assets = [name for name in route.parameters if is_asset(fields(kind)[name])]
    if assets:
        two = route.path.replace(f"{{{assets[0]}}}", "{namespace}/{name}")
        yield _PARAMETER.sub(r"{\1:str}", two)


def _described(kind: type[Operation[Any]]) -> Described:
    """What the OpenAPI document says of it."""
    contract = kind.contract
    has_body = contract.route.has_body
    shape = "accepted" if issubclass(kind, Change) else "page" if issubclass(kind, ListQuestion) else "one"
    answered = answer_type(kind)
    return Described(
        answers=get_args(answered) if isinstance(answered, UnionType) else answered,
        shape="plain" if shape == "one" and has_body else shape,  # type: ignore[arg-type]  # one of the four
        query=None if has_body else query_type(kind),
        body=body_type(kind) if has_body else None,
        body_required=requires_body(kind),
        # A question may be sent the body of the change that it is about, key and all.
        keyed=contract.key if contract.key != "none" and issubclass(kind, Change) else "",
        example=contract.example,
        refusals=tuple(HTTPStatus(status) for status in contract.refusals),
        may_be_nothing=contract.may_do_nothing,
    )
