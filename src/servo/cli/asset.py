"""List, show and explain the project's assets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from servo.answers.assets import AssetDetails, AssetView, RetryView
from servo.answers.partitions import AssetWhy
from servo.answers.values import text
from servo.cli.opening import server, services, settings
from servo.cli.options import as_of_option, complete_assets, json_option, past, reasoned
from servo.cli.output import columns, draw, echo_json, note, table, without_duplicate
from servo.cli.services import definition_of
from servo.operations.assets.requests import AcceptCode, Explain, GetAsset, ListAssets
from servo.ui.marks import counted, drawn
from servo.ui.proof import asset_proof

if TYPE_CHECKING:
    from servo.partitions import Dimension, Partitions

_FEW_VALUES = 4


@click.command("list")
@json_option
def list_assets(as_json: bool) -> None:
    """List the assets, upstreams first, as the project's code declares them. No ledger is needed."""
    with services(as_json=as_json) as here:
        found = here.listed(ListAssets()).items
        if here.remote:
            found = _upstreams_first(sorted(found, key=lambda one: (one.file, one.line)))
    if as_json:
        echo_json({"assets": found})
        return
    rows = [
        (
            one.asset_key,
            in_words(definition_of(one)),
            one.partition_count,
            ", ".join(_short(one.asset_key, upstream) for upstream in one.upstream),
            one.group,
            one.code_version,
        )
        for one in found
    ]
    count = "1 asset" if len(rows) == 1 else f"{len(rows):,} assets"
    table(["asset", "partitions", "count", "upstreams", "group", "code version"], rows, count)


@click.command()
@click.argument("name", shell_complete=complete_assets)
@json_option
def show(name: str, as_json: bool) -> None:
    """Show all that is declared about an asset: `orders`, `sales/orders` or `sales.orders`."""
    with services(as_json=as_json) as here:
        found = here.ask(GetAsset(asset=name))
        if as_json:
            echo_json(found)
            return
        lines = _lines(found, lambda asset: definition_of(here.ask(GetAsset(asset=asset))), here.clock())
    for label, value in lines:
        click.echo(f"{click.style(f'{label:<14}', bold=True)}{text(value)}")


@click.command()
@click.argument("name", shell_complete=complete_assets)
@as_of_option
@json_option
def why(name: str, as_of: str | None, as_json: bool) -> None:
    """Explain an asset: how many of its partitions are stale, missing or failed, why, and where that began."""
    with services(as_json=as_json, reading=True) as here:
        found = here.ask(Explain(asset=name), as_of=past(as_of))
    assert isinstance(found, AssetWhy)
    if as_json:
        echo_json(found)
        return
    draw(drawn(asset_proof(found), columns()))
    if found.hint and as_of is None:
        note(found.hint)


@click.command("accept-code")
@click.argument("name", metavar="ASSET", shell_complete=complete_assets)
@reasoned(required=True)
@click.option("--from", "versions", multiple=True, metavar="VERSION", help="A version that it is equal to; repeatable.")
@json_option
def accept_code(name: str, reason: str, versions: tuple[str, ...], as_json: bool) -> None:
    """Declare that an asset's code makes what it made before: a refactoring. Nothing is computed.

    Partitions that the version before has made are no longer stale by their code. That is the newest version that
    partitions were made with; `--from` names others.

    \b
    servo asset accept-code orders --reason "moved helpers into a module"
    """
    with services(as_json=as_json) as here:
        done = here.do(AcceptCode(asset=name, versions=versions, reason=reason))
    if as_json:
        echo_json(without_duplicate(done))
        return
    equal, count = " and ".join(done.equal_to), counted(done.partitions, "partition")
    click.echo(f"✓ {done.asset_key}: code {done.code_version} makes what {equal} made ({count})")
    for change in done.changes:
        note(change)


# ── in words ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _lines(found: AssetDetails, definition: Callable[[str], Partitions], now: datetime) -> list[tuple[str, Any]]:
    own = definition_of(found)
    partitions = in_words(own)
    if own.dimensions:
        everything = own.everything(now)
        # Of values that are added and taken away, what is declared says nothing.
        which = f", {everything.describe()}" if everything else ""
        partitions = f"{partitions}: {found.partition_count:,} until now{which}"
    lines: list[tuple[str, Any]] = [
        ("asset", found.asset_key),
        ("declared at", f"{found.file}:{found.line}"),
        ("partitions", partitions),
    ]
    for upstream in found.upstream:
        as_what = "no DataFrame" if upstream.parameter is None else f"as {upstream.parameter}"
        how = mapping_in_words(definition(upstream.asset_key), own, upstream.mapping)
        lines.append(("upstream", f"{upstream.asset_key} ({as_what}): {how}"))
    for downstream in found.downstream:
        how = mapping_in_words(own, definition(downstream.asset_key), downstream.mapping)
        lines.append(("downstream", f"{downstream.asset_key}: {how}"))
    lines += [("check", f"{check.name}{', blocking' if check.blocking else ''}") for check in found.checks]
    lines.append(("computed", "all partitions of a task at once" if found.batch else "partition by partition"))
    lines.append(("code version", found.code_version))
    lines.append(("retry", _retry(found.retry)))
    if (approval := found.approval) is not None:
        four = ", not by whoever asked for the run" if approval.four_eyes else ""
        until = "" if approval.deadline_seconds is None else f", within {_duration(approval.deadline_seconds)}"
        lines.append(("approval", f"by {approval.approvers}{four}{until}"))
    if found.freshness_seconds is not None:
        lines.append(("freshness", f"at most {_duration(found.freshness_seconds)} old"))
    optional = {
        "group": found.group,
        "owners": ", ".join(found.owners),
        "tags": ", ".join(f"{name}={value}" if value else name for name, value in found.tags.items()),
        "renamed from": found.renamed_from,
        "description": found.description and " ".join(found.description.split()),
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


def mapping_in_words(read: Partitions, by: Partitions, data: dict[str, Any]) -> str:
    """Which partitions of the upstream a partition of the downstream reads, by the JSON of the mapping."""
    if not read.dimensions:
        return "its only partition"
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


def _retry(retry: RetryView) -> str:
    if retry.attempts == 1:
        return "one attempt"
    delay, cap = _duration(retry.delay_seconds), _duration(retry.cap_seconds)
    on = f", on {', '.join(retry.on)}" if retry.on else ""
    return f"{retry.attempts} attempts, after {delay}, then {retry.factor} times as long, at most {cap}{on}"


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _upstreams_first(assets: list[AssetView]) -> list[AssetView]:
    """As a graph has them (`servo.assets.graph`); else in the order in which they come."""
    waiting = {one.asset_key: len(one.upstream) for one in assets}
    ordered = [one for one in assets if not one.upstream]
    for one in ordered:  # grows while it is walked through
        for reader in assets:
            if one.asset_key in reader.upstream:
                waiting[reader.asset_key] -= 1
                if waiting[reader.asset_key] == 0:
                    ordered.append(reader)
    return ordered


def _short(key: str, upstream: str) -> str:
    """Without the namespace where it is the asset's own."""
    namespace, _, name = upstream.partition("/")
    return name if namespace == key.partition("/")[0] else upstream


def asset_names() -> list[str]:
    """The names and keys of the project's assets, for completion; none where the project cannot be read at a glance."""
    if server() is not None:
        with services() as here:
            keys = [one.asset_key for one in here.listed(ListAssets()).items]
    else:
        from servo.runtime.definitions_cache import remembered_keys  # noqa: PLC0415 (the ledger comes with it)

        keys = remembered_keys(settings())
    return [name for key in keys for name in (key.partition("/")[2], key)]
