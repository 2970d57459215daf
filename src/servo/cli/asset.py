"""`servo asset`: what the project declares."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from servo.cli.completing import complete_assets
from servo.cli.opening import read_ahead, server, services
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, plain_struct, table
from servo.cli.values import plain, text

if TYPE_CHECKING:
    from servo.assets.graph import Graph
    from servo.assets.spec import AssetSpec
    from servo.partitions import Dimension, Partitions

_FEW_VALUES = 4


@click.group()
def asset() -> None:
    """List, show and explain the project's assets."""


@asset.command("list")
@json_option
def list_assets(as_json: bool) -> None:
    """List the assets, upstreams first, as the project's code declares them. No ledger is needed."""
    found = _documents()
    if as_json:
        echo_json({"assets": found})
        return
    from servo.partitions import Partitions

    rows = [
        (
            one["asset_key"],
            in_words(Partitions.from_json({"dimensions": one["partitions"]})),
            one["partition_count"],
            ", ".join(_short(one["asset_key"], upstream) for upstream in one["upstream"]),
            one["group"],
            one["code_version"],
        )
        for one in found
    ]
    count = "1 asset" if len(rows) == 1 else f"{len(rows):,} assets"
    table(["asset", "partitions", "count", "upstreams", "group", "code version"], rows, count)


@asset.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show all that is declared about an asset: `orders`, `sales/orders` or `sales.orders`."""
    from servo.clock import system_clock

    if server() is not None:
        _show_remote(name, as_json=as_json)
        return
    graph, now = _graph(), system_clock()
    spec = graph[graph.resolve(name)]
    if as_json:
        from servo.runtime.documents import asset_shown

        echo_json(asset_shown(graph, spec, now))
        return
    for label, value in _lines(graph, spec, now):
        click.echo(f"{click.style(f'{label:<14}', bold=True)}{text(value)}")


@asset.command()
@click.argument("name", shell_complete=complete_assets)
@click.option("--as-of", metavar="TIME|EVENT_ID", help="Then: with the definitions and the state of that time.")
@json_option
def why(name: str, as_of: str | None, as_json: bool) -> None:
    """Explain an asset: how many of its partitions are stale, missing or failed, why, and where that began."""
    read_ahead()
    with services(as_json=as_json) as here:
        found = here.why.asset(name, as_of=None if as_of is None else _moment(as_of))
    if as_json:
        echo_json(plain_struct(found))
        return
    from servo.cli.drawing import columns, draw
    from servo.ui.proof import asset_proof
    from servo.ui.tree import drawn

    draw(drawn(asset_proof(found), columns()))
    if found.hint and as_of is None:
        note(found.hint)


def _documents() -> list[dict[str, Any]]:
    """Each asset as JSON, upstreams first: as the code here declares it, or as it is deployed at the server."""
    if server() is None:
        from servo.clock import system_clock
        from servo.runtime.documents import asset_listed

        graph, now = _graph(), system_clock()
        return [asset_listed(graph, spec, now) for spec in graph.specs.values()]
    with services() as here:
        return [plain(one) for one in here.assets()]


def _show_remote(name: str, *, as_json: bool) -> None:
    """As it is deployed at the server; for people, what it says in the words of the JSON."""
    with services(as_json=as_json) as here:
        found = here.asset(name)
    if as_json:
        echo_json(plain(found))
        return
    for label, value in found.items():
        if value not in (None, [], {}, ""):
            click.echo(f"{click.style(f'{label:<20}', bold=True)}{text(value)}")


def _graph() -> Graph:
    """The project's assets: as last deployed, where the code has not changed since; else from the code."""
    from servo.runtime.definitions_cache import quick_catalog
    from servo.runtime.settings import load_settings

    settings = load_settings()
    known = quick_catalog(settings)
    if known is not None:
        return known.graph
    from servo.assets.loading import load

    return load(settings).graph


def _moment(written: str) -> datetime | str:
    from servo.runtime.service import parse_moment

    return parse_moment(written)


# ── in words ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _lines(graph: Graph, spec: AssetSpec, now: Any) -> list[tuple[str, Any]]:
    everything = spec.partitions.everything(now)
    partitions = in_words(spec.partitions)
    if spec.partitions.dimensions:
        partitions = f"{partitions}: {everything.count:,} until now" + (
            f", {everything.describe()}" if everything else ""
        )
    lines: list[tuple[str, Any]] = [("asset", spec.key), ("declared at", spec.source), ("partitions", partitions)]
    for one in spec.dependencies:
        as_what = "no DataFrame" if one.parameter is None else f"as {one.parameter}"
        how = mapping_in_words(graph, one.upstream, spec.key)
        lines.append(("upstream", f"{one.upstream} ({as_what}): {how}"))
    for key in graph.downstream(spec.key):
        lines.append(("downstream", f"{key}: {mapping_in_words(graph, spec.key, key)}"))
    lines += [("check", f"{one.name}{', blocking' if one.blocking else ''}") for one in spec.checks]
    lines.append(("computed", "all partitions of a task at once" if spec.batch else "partition by partition"))
    lines.append(("code version", spec.code_version))
    lines.append(("retry", _retry(spec)))
    if spec.approval is not None:
        four = ", not by whoever asked for the run" if spec.approval.four_eyes else ""
        until = "" if spec.approval.deadline is None else f", within {_duration(spec.approval.deadline)}"
        lines.append(("approval", f"by {spec.approval.approvers}{four}{until}"))
    if spec.freshness is not None:
        lines.append(("freshness", f"at most {_duration(spec.freshness)} old"))
    tags = ", ".join(f"{name}={value}" if value else name for name, value in spec.tags.items())
    optional = {
        "group": spec.group,
        "owners": ", ".join(spec.owners),
        "tags": tags,
        "renamed from": spec.renamed_from,
        "description": spec.description and " ".join(spec.description.split()),
    }
    return lines + [(label, value) for label, value in optional.items() if value]


def in_words(partitions: Partitions) -> str:
    """A definition in a few words: `daily date × region (eu, us)`."""
    return " × ".join(map(_dimension, partitions.dimensions)) or "none"


def _dimension(dimension: Dimension) -> str:
    if dimension.timed:
        data = dimension.to_json()
        kind = f"cron {data['cron']}" if dimension.kind == "cron" else dimension.kind
        zone = data.get("timezone")
        return f"{kind} {dimension.name}" + (f" ({zone})" if zone not in (None, "UTC") else "")
    if dimension.kind == "dynamic":
        return f"dynamic {dimension.name}"
    low, high = dimension.bounds()
    if high - low > _FEW_VALUES:
        return f"{dimension.name} ({high - low:,} values)"
    return f"{dimension.name} ({', '.join(map(dimension.label, range(low, high)))})"


def mapping_in_words(graph: Graph, upstream: str, downstream: str) -> str:
    """Which partitions of the upstream a partition of the downstream reads."""
    read, by = graph[upstream].partitions, graph[downstream].partitions
    if not read.dimensions:
        return "its only partition"
    data = graph.mapping(upstream, downstream).to_json()
    if data["kind"] != "by_dimension":
        return _mapped(data)
    given = data["mappings"]
    said = {
        dimension.name: _mapped(given[dimension.name]) if dimension.name in given else _by_default(dimension, by)
        for dimension in read.dimensions
    }
    if set(said.values()) == {_SAME}:
        return _SAME
    return ", ".join(f"{name}: {words}" for name, words in said.items())


_SAME = "the same"


def _by_default(dimension: Dimension, by: Partitions) -> str:
    same = next((one for one in by.dimensions if one.name == dimension.name), None)
    if same is not None and same.kind == dimension.kind:
        return _SAME
    return "those that overlap" if dimension.timed and any(one.timed for one in by.dimensions) else "all"


def _mapped(data: dict[str, Any]) -> str:
    """A mapping as its JSON says it."""
    match data:
        case {"kind": "identity"}:
            return _SAME
        case {"kind": "overlap"}:
            return "those that overlap"
        case {"kind": "offset", "n": int(n)}:
            return f"{abs(n)} window{'' if abs(n) == 1 else 's'} {'before' if n < 0 else 'after'}"
        case {"kind": "lookback", "n": n}:
            return f"the last {n} windows"
        case {"kind": "last"}:
            return "the newest"
        case {"kind": "explicit"}:
            return "as written down"
        case {"kind": "custom", "function": function}:
            return f"by {function}"
    return str(data["kind"])


def _retry(spec: AssetSpec) -> str:
    retry = spec.retry
    if retry.attempts == 1:
        return "one attempt"
    waits = f"after {_duration(retry.delay)}, then {retry.factor} times as long, at most {_duration(retry.cap)}"
    return f"{retry.attempts} attempts, {waits}" + (f", on {', '.join(map(str, retry.on))}" if retry.on else "")


def _duration(length: timedelta) -> str:
    seconds = length.total_seconds()
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _short(key: str, upstream: str) -> str:
    """Without the namespace where it is the asset's own."""
    namespace, _, name = upstream.partition("/")
    return name if namespace == key.partition("/")[0] else upstream
