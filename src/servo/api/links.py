"""OpenAPI's links: where an answer names a thing, which operations take its name. Machines find their way by it."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["link"]

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
    """Add the links to what makes things and what lists them: whoever begins there comes everywhere."""
    takers: dict[str, list[str]] = {thing: [] for thing in _THINGS}
    for path, entry in document["paths"].items():
        for thing in set(_PARAMETER.findall(path)) & set(_THINGS):
            takers[thing] += [said["operationId"] for said in entry.values()]
    for path, entry in document["paths"].items():
        if "{" in path:
            continue
        for said in entry.values():
            for status in {"200", "202"} & set(said["responses"]):
                links = _links(said["responses"][status], takers, document["components"]["schemas"])
                if links:
                    said["responses"][status]["links"] = links
        noun = path.rpartition("/")[2]
        if noun in _LISTED and "get" in entry:
            thing, place = _LISTED[noun]
            entry["get"]["responses"]["200"]["links"] = {one: _link(one, thing, place) for one in takers[thing]}


def _link(taker: str, thing: str, place: str) -> dict[str, Any]:
    return {"operationId": taker, "parameters": {thing: f"$response.body#{place}"}}


def _links(answer: dict[str, Any], takers: dict[str, list[str]], schemas: dict[str, Any]) -> dict[str, Any]:
    schema = answer["content"].get("application/json", {}).get("schema", {})
    found: dict[str, Any] = {}
    for thing, name in _THINGS.items():
        place = _place(schema, name, schemas, _DEEPEST)
        if place is not None:
            found |= {taker: _link(taker, thing, place) for taker in takers[thing]}
    return found


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
