"""List, show and explain the project's assets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from servo.answers.assets import AssetDetails, AssetView, RetryView
from servo.answers.partitions import AssetWhy
from servo.answers.values import text
from servo.cli.opening import Services, definition_of, server, services, settings
from servo.cli.options import Answer, as_of_option, command, complete_assets, past, reasoned
from servo.cli.output import note, show_why, table, without_duplicate
from servo.operations.assets.requests import AcceptCode, Explain, GetAsset, ListAssets
from servo.ui.marks import counted
from servo.ui.proof import asset_proof

if TYPE_CHECKING:
    from servo.partitions import Dimension, Partitions

_FEW_VALUES = 4


@command("list")
def list_assets(here: Services) -> Answer:
    """List the assets, upstreams first, as the project's code declares them. No ledger is needed."""
    assets = here.listed(ListAssets()).items
    if here.remote:
        assets = _upstreams_first(sorted(assets, key=lambda one: (one.file, one.line)))
    return Answer({"assets": assets}, lambda: _show_list(assets))


def _show_list(assets: list[AssetView]) -> None:
    rows = [
        (
            one.asset_key,
            in_words(definition_of(one)),
            one.partition_count,
            ", ".join(_short(one.asset_key, upstream) for upstream in one.upstream),
            one.group,
            one.code_version,
        )
        for one in assets
    ]
    table(["asset", "partitions", "count", "upstreams", "group", "code version"], rows, counted(len(rows), "asset"))


@command()
@click.argument("name", shell_complete=complete_assets)
def show(here: Services, name: str) -> Answer:
    """Show all that is declared about an asset: `orders`, `sales/orders` or `sales.orders`."""
    asset = here.ask(GetAsset(asset=name))

    def show_lines() -> None:
        for label, value in _lines(asset, lambda key: definition_of(here.ask(GetAsset(asset=key))), here.clock()):
            click.echo(f"{click.style(f'{label:<14}', bold=True)}{text(value)}")

    return Answer(asset, show_lines)


@command(reading=True)
@click.argument("name", shell_complete=complete_assets)
@as_of_option
def why(here: Services, name: str, as_of: str | None) -> Answer:
    """Explain an asset: how many of its partitions are stale, missing or failed, why, and where that began."""
    explained = here.ask(Explain(asset=name), as_of=past(as_of))
    assert isinstance(explained, AssetWhy)
    return Answer(explained, lambda: show_why(asset_proof(explained), None if as_of else explained.hint))


@command("accept-code")
@click.argument("name", metavar="ASSET", shell_complete=complete_assets)
@reasoned(required=True)
@click.option("--from", "versions", multiple=True, metavar="VERSION", help="A version that it is equal to; repeatable.")
def accept_code(here: Services, name: str, reason: str, versions: tuple[str, ...]) -> Answer:
    """Declare that an asset's code makes what it made before: a refactoring. Nothing is computed.

    Partitions that the version before has made are no longer stale by their code. That is the newest version that
    partitions were made with; `--from` names others.

    \b
    servo asset accept-code orders --reason "moved helpers into a module"
    """
    done = here.do(AcceptCode(asset=name, versions=versions, reason=reason))

    def confirm() -> None:
        equal, count = " and ".join(done.equal_to), counted(done.partitions, "partition")
        click.echo(f"✓ {done.asset_key}: code {done.code_version} makes what {equal} made ({count})")
        for change in done.changes:
            note(change)

    return Answer(without_duplicate(done), confirm)


# ── in words ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _lines(asset: AssetDetails, definition: Callable[[str], Partitions], now: datetime) -> list[tuple[str, Any]]:
    own = definition_of(asset)
    partitions = in_words(own)
    if own.dimensions:
        everything = own.everything(now)
        # Of values that are added and taken away, what is declared says nothing.
        which = f", {everything.describe()}" if everything else ""
        partitions = f"{partitions}: {asset.partition_count:,} until now{which}"
    lines: list[tuple[str, Any]] = [
        ("asset", asset.asset_key),
        ("declared at", f"{asset.file}:{asset.line}"),
        ("partitions", partitions),
    ]
    for upstream in asset.upstream:
        as_what = "no DataFrame" if upstream.parameter is None else f"as {upstream.parameter}"
        how = mapping_in_words(definition(upstream.asset_key), own, upstream.mapping)
        lines.append(("upstream", f"{upstream.asset_key} ({as_what}): {how}"))
    for downstream in asset.downstream:
        how = mapping_in_words(own, definition(downstream.asset_key), downstream.mapping)
        lines.append(("downstream", f"{downstream.asset_key}: {how}"))
    lines += [("check", f"{check.name}{', blocking' if check.blocking else ''}") for check in asset.checks]
    lines.append(("computed", "all partitions of a task at once" if asset.batch else "partition by partition"))
    lines.append(("code version", asset.code_version))
    lines.append(("retry", _retry(asset.retry)))
    if (approval := asset.approval) is not None:
        four = ", not by whoever asked for the run" if approval.four_eyes else ""
        until = "" if approval.deadline_seconds is None else f", within {_duration(approval.deadline_seconds)}"
        lines.append(("approval", f"by {approval.approvers}{four}{until}"))
    if asset.freshness_seconds is not None:
        lines.append(("freshness", f"at most {_duration(asset.freshness_seconds)} old"))
    optional = {
        "group": asset.group,
        "owners": ", ".join(asset.owners),
        "tags": ", ".join(f"{name}={value}" if value else name for name, value in asset.tags.items()),
        "renamed from": asset.renamed_from,
        "description": asset.description and " ".join(asset.description.split()),
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
    words = {
        dimension.name: _mapped(given[dimension.name]) if dimension.name in given else _by_default(dimension, by)
        for dimension in read.dimensions
    }
    if set(words.values()) == {_SAME}:
        return _SAME
    return ", ".join(f"{name}: {how}" for name, how in words.items())


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
