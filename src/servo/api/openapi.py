"""The OpenAPI 3.1 document, from what the routes say of themselves. Schemas are those of what is encoded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Literal, get_type_hints

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from servo.api.inputs import HEADER, LONGEST_KEY
from servo.api.problems import PROBLEM_JSON
from servo.api.states import Mark
from servo.partitions import PartitionSet

__all__ = ["OPERATION", "PUBLIC", "ROLE", "Operation", "Role", "Shape", "document_of", "link", "operation"]

Role = Literal["public", "viewer", "operator", "approver", "admin"]
Shape = Literal["one", "page", "accepted", "plain", "stream", "html"]

ROLE, PUBLIC, OPERATION = "role", "public", "operation"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What a route says of itself: what it takes and what it answers.

    `shape`: how the answer is wrapped. `one` and `page` have a watermark; `accepted` names the event that was recorded;
    `plain` is the answer as it is.
    """

    answers: Any = dict[str, Any]
    shape: Shape = "one"
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    body_required: bool = True
    keyed: Literal["", "optional", "required"] = ""
    example: dict[str, Any] | None = None  # of the body
    refusals: tuple[HTTPStatus, ...] = ()
    media_type: str = "application/json"
    may_be_nothing: bool = False  # of a mutation: where there is nothing to do, its ids are null


def operation(role: Role, **described: Any) -> dict[str, Any]:
    """The `opt` of a handler: the role that it takes, and what is said of it."""
    if role == "public":
        return {PUBLIC: True, OPERATION: Operation(**described)}
    return {ROLE: role, OPERATION: Operation(**described)}


# ── the document ─────────────────────────────────────────────────────────────────────────────────────────────────


_TEMPLATE = "#/components/schemas/{name}"
_PATH_PARAMETER = re.compile(r"\{(\w+)\}")
_DESCRIPTION = """\
Everything that Servo can do, for machines and people. Answers are the same structs as `servo … --json`.

Reads answer `{"data" or "items", "watermark", "next_cursor"}`. Mutations answer 202 with `accepted_event_id`,
`accepted_at` and `correlation_id`, or 200 where the same `Idempotency-Key` was accepted before, with the first answer.
Errors are RFC 9457 problems with a stable `code`.
"""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An RFC 9457 problem."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str | None = None
    field: str | None = None
    expected: int | None = None
    actual: int | None = None
    behind_events: int | None = None
    behind_seconds: float | None = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded: by which event, when, and whose story it is part of; null where there was nothing to do."""

    accepted_event_id: str | None
    accepted_at: str | None
    correlation_id: str | None


def document_of(app: Litestar, *, version: str) -> dict[str, Any]:
    """Make the document of an application."""
    handlers = list(_handlers(app))
    operations = [handler.opt[OPERATION] for _, _, handler in handlers]
    kinds = _distinct([Problem, Receipt, Mark, *_answers_of(operations), *_bodies_of(operations)])
    shapes, components = msgspec.json.schema_components(kinds, schema_hook=_schema_of, ref_template=_TEMPLATE)
    schemas = {_name(kind): shape for kind, shape in zip(kinds, shapes, strict=True)}
    schemas |= {_TEMPLATE.format(name=name): shape for name, shape in components.items()}
    paths: dict[str, dict[str, Any]] = {}
    for path, method, handler in handlers:
        entry = paths.setdefault(path, {})
        entry[method.lower()] = _described(path, method, handler, schemas)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Servo", "version": version, "description": _DESCRIPTION},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # At this machine's own address a token may be left out.
        "security": [{"token": []}] if app.state.get("demands_tokens") else [{}, {"token": []}],
    }
    link(document)
    return document


def _handlers(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                if OPERATION in handler.opt:
                    for method in sorted(handler.http_methods - {"OPTIONS", "HEAD"}):
                        yield route.path_format, method, handler


def _bodies_of(operations: list[Operation]) -> Iterator[Any]:
    for op in operations:
        if op.body is not None:
            yield op.body


def _answers_of(operations: list[Operation]) -> Iterator[Any]:
    for op in operations:
        yield from op.answers if isinstance(op.answers, tuple) else (op.answers,)


def _distinct(kinds: list[Any]) -> list[Any]:
    return list({_name(kind): kind for kind in kinds}.values())


def _name(kind: Any) -> str:
    return str(kind)


def _described(path: str, method: str, handler: HTTPRouteHandler, schemas: dict[str, Any]) -> dict[str, Any]:
    op: Operation = handler.opt[OPERATION]
    summary, _, more = (handler.fn.__doc__ or "").strip().partition("\n")
    tags = sorted({tag for layer in handler.ownership_layers for tag in getattr(layer, "tags", None) or ()})
    noun = path.rpartition("/orchestration/")[2].strip("/")
    words = _PATH_PARAMETER.sub(r"by_\1", noun).replace("/", "_").replace("-", "_").replace(".", "_")
    described: dict[str, Any] = {
        "operationId": f"{method.lower()}_{words}",
        "summary": summary.strip(),
        "description": f"{' '.join(more.split())}\n\nTakes the role `{handler.opt.get(ROLE, 'public')}`.".strip(),
        "tags": tags,
        "parameters": [*_path_parameters(path), *_query_parameters(op), *_headers(op)],
        "responses": _responses(op, schemas),
    }
    if PUBLIC in handler.opt:
        described["security"] = []
    if op.body is not None or op.example is not None:
        shape = {"type": "object"} if op.body is None else schemas[_name(op.body)]
        content: dict[str, Any] = {"schema": shape}
        if op.example is not None:
            content["example"] = op.example
        described["requestBody"] = {
            "required": op.body is None or op.body_required,
            "content": {"application/json": content},
        }
    return described


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PATH_PARAMETER.findall(path)
    ]


def _query_parameters(op: Operation) -> list[dict[str, Any]]:
    if op.query is None:
        return []
    get_type_hints(op.query)  # says it here, and not in a request, where a name is wrong
    whole = msgspec.json.schema(op.query)
    (shape,) = whole["$defs"].values()
    parameters = []
    for name, declared in shape["properties"].items():
        schema = _without_null(declared)
        described = schema.pop("description", None)
        parameter: dict[str, Any] = {
            "name": name,
            "in": "query",
            "required": name in shape.get("required", ()),
            "schema": schema,
        }
        if described is not None:
            parameter["description"] = described
        if schema.get("type") == "array":
            parameter |= {"style": "form", "explode": True}
        parameters.append(parameter)
    return parameters


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is left out; there is no null in a URL."""
    if "anyOf" in schema:
        left = [one for one in schema["anyOf"] if one.get("type") != "null"]
        rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        return {**left[0], **rest} if len(left) == 1 else {"anyOf": left, **rest}
    if "enum" in schema and None in schema["enum"]:
        return {**{key: value for key, value in schema.items() if key != "default"}, "enum": _texts(schema["enum"])}
    return dict(schema)


def _texts(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _headers(op: Operation) -> list[dict[str, Any]]:
    if not op.keyed:
        return []
    description = "The same key is the same request: asked again, it is answered with the first answer."
    if op.keyed == "required":
        description += " Required, here or as `client_request_id`."
    schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY}
    return [{"name": HEADER, "in": "header", "required": False, "schema": schema, "description": description}]


def _responses(op: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    answers = [schemas[_name(kind)] for kind in _answers_of([op])]
    answer: dict[str, Any] = answers[0] if len(answers) == 1 else {"anyOf": answers}
    mark = schemas[_name(Mark)]
    responses: dict[str, Any] = {}
    if op.shape == "one":
        responses["200"] = _answer(
            "The answer, and how much of the ledger it knows of.", _object(data=answer, watermark=mark)
        )
    elif op.shape == "page":
        page = _object(
            items={"type": "array", "items": answer},
            watermark=mark,
            next_cursor={"anyOf": [{"type": "string"}, {"type": "null"}]},
        )
        responses["200"] = _answer("A page; `next_cursor` is null on the last one.", page)
    elif op.shape == "accepted":
        came_to = _without(schemas.get(str(answer.get("$ref")), answer), "duplicate", "accepted_at")
        if op.may_be_nothing:
            came_to = {"anyOf": [came_to, {"type": "object"}]}
        both = {"allOf": [schemas[_name(Receipt)], came_to]}
        responses["202"] = _answer("It is in the ledger.", both)
        responses["200"] = _answer("It was there before: the first answer; or there was nothing to do.", both)
    elif op.shape == "plain":
        responses["200"] = responses["202"] = _answer("The answer.", answer)
    elif op.shape == "stream":
        # Of each event: what is sent is the fields as lines, and `data` is JSON.
        data = {"type": "string", "contentMediaType": "application/json", "contentSchema": answer}
        schema = _object(id={"type": "string"}, event={"type": "string"}, data=data)
        responses["200"] = {
            "description": "Events, one after the other.",
            "content": {op.media_type: {"schema": schema}},
        }
    else:
        schema = {"type": "object" if op.media_type == "application/json" else "string"}
        responses["200"] = {"description": "See above.", "content": {op.media_type: {"schema": schema}}}
    problem = {"schema": schemas[_name(Problem)]}
    refusals = {HTTPStatus.BAD_REQUEST, HTTPStatus.SERVICE_UNAVAILABLE, *op.refusals, *_ALWAYS}
    if op.body is not None or op.example is not None:
        refusals |= _OF_BODIES
    for status in sorted(refusals):
        responses[str(int(status))] = {"description": status.phrase, "content": {PROBLEM_JSON: problem}}
    return responses


_ALWAYS = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.MISDIRECTED_REQUEST,
)
_OF_BODIES = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
}


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _without(schema: dict[str, Any], *names: str) -> dict[str, Any]:
    """A struct's schema without these: the receipt says them, and the status."""
    if "properties" not in schema:
        return schema
    properties = {name: property_ for name, property_ in schema["properties"].items() if name not in names}
    required = [name for name in schema.get("required", ()) if name not in names]
    return {**schema, "properties": properties, "required": required}


def _schema_of(kind: type) -> dict[str, Any]:
    if issubclass(kind, PartitionSet):
        return {"type": "object"}
    return {}


# ── links: where an answer names a thing, which operations take its name ─────────────────────────────────────────


# How a path calls a thing, and how an answer does.
_THINGS = {
    "run_id": "run_id",
    "backfill": "backfill_id",
    "schedule": "schedule_id",
    "sensor": "sensor_id",
    "checkpoint_id": "checkpoint_id",
}
# Of lists whose schema leaves open what their items have.
_LISTED = {
    "runs": ("run_id", "/items/0/run_id"),
    "backfills": ("backfill", "/items/0/root/backfill_id"),
    "checkpoints": ("checkpoint_id", "/items/0/checkpoint_id"),
}
_PARAMETER = re.compile(r"\{(\w+)\}")
_DEEPEST = 4


def link(document: dict[str, Any]) -> None:
    """Add the links to what makes things and what lists them: from there every path can be reached."""
    takers: dict[str, list[str]] = {thing: [] for thing in _THINGS}
    for path, entry in document["paths"].items():
        for thing in set(_PARAMETER.findall(path)) & set(_THINGS):
            takers[thing] += [described["operationId"] for described in entry.values()]
    for path, entry in document["paths"].items():
        if "{" in path:
            continue
        for described in entry.values():
            for status in {"200", "202"} & set(described["responses"]):
                links = _links(described["responses"][status], takers, document["components"]["schemas"])
                if links:
                    described["responses"][status]["links"] = links
        noun = path.rpartition("/")[2]
        if noun in _LISTED and "get" in entry:
            thing, place = _LISTED[noun]
            entry["get"]["responses"]["200"]["links"] = {one: _link(one, thing, place) for one in takers[thing]}


def _link(taker: str, thing: str, place: str) -> dict[str, Any]:
    return {"operationId": taker, "parameters": {thing: f"$response.body#{place}"}}


def _links(answer: dict[str, Any], takers: dict[str, list[str]], schemas: dict[str, Any]) -> dict[str, Any]:
    schema = answer["content"].get("application/json", {}).get("schema", {})
    links: dict[str, Any] = {}
    for thing, name in _THINGS.items():
        place = _place(schema, name, schemas, _DEEPEST)
        if place is not None:
            links |= {taker: _link(taker, thing, place) for taker in takers[thing]}
    return links


def _place(schema: dict[str, Any], name: str, schemas: dict[str, Any], deepest: int) -> str | None:
    """Where in what a schema describes a property of this name is, as a JSON pointer; of lists, in the first."""
    if deepest < 0:
        return None
    if "$ref" in schema:
        return _place(schemas[schema["$ref"].rpartition("/")[2]], name, schemas, deepest)
    properties = schema.get("properties", {})
    if name in properties:
        return f"/{name}"
    for part in (*schema.get("allOf", ()), *schema.get("anyOf", ())):
        if (place := _place(part, name, schemas, deepest)) is not None:
            return place
    if schema.get("type") == "array" and "items" in schema:
        place = _place(schema["items"], name, schemas, deepest - 1)
        return None if place is None else f"/0{place}"
    for wrapped in ("data", "items", "root"):
        if wrapped in properties:
            place = _place(properties[wrapped], name, schemas, deepest - 1)
            if place is not None:
                return f"/{wrapped}{place}"
    return None
