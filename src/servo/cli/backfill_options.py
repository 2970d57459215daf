"""What `servo backfill create` and `preview` take alike: which partitions, in which chunks, with what else."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from servo.cli.completing import complete_assets

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


class Span(click.ParamType[float]):
    """A duration: `90s`, `2m`, `1h30m`."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        parts = _SPAN.findall(value)
        if not parts or "".join(number + unit for number, unit in parts) != value:
            self.fail(f"{value!r} is not a duration such as 90s, 2m or 1h30m", param, ctx)
        return sum(float(number) * _UNITS[unit] for number, unit in parts)


_OPTIONS = [
    click.argument("assets", nargs=-1, required=True, metavar="ASSET...", shell_complete=complete_assets),
    click.option("--start", metavar="A", help="The first partition: 2025-01-01, 2025-01."),
    click.option("--end", metavar="B", help="The last one, which is part of it; without it, up to now."),
    click.option("--partitions", metavar="P", help="Which: 2025-01-01,2025-01-15, all, region=eu."),
    click.option(
        "--filter",
        type=click.Choice(("missing", "failed", "stale"), case_sensitive=False),
        help="Only those that are so; alone, of all.",
    ),
    click.option("--chunk-size", type=int, metavar="N", help="Partitions of one run.  [default: 10]"),
    click.option("--target-chunk", type=Span(), metavar="T", help="Instead: as many as take about so long, 2m."),
    click.option(
        "--concurrency",
        "max_concurrent_runs",
        type=int,
        default=2,
        show_default=True,
        metavar="N",
        help="Runs of an asset at the same time.",
    ),
    click.option("--include-upstream", is_flag=True, help="First compute what they are made from."),
    click.option(
        "--max-upstream-depth", type=int, metavar="N", help="So many levels up; 1 is direct, -1 as far as it goes."
    ),
    click.option("--include-downstream", is_flag=True, help="Then compute what is made from them."),
    click.option("--only-missing", is_flag=True, help="Of what is upstream, leave out what is current."),
    click.option("--priority", type=int, default=0, show_default=True, metavar="N", help="Higher goes first."),
    click.option("--newest-first", is_flag=True, help="Begin with the last partitions, as they are defined."),
    click.option("--name", metavar="NAME", help="What it is called; by default after the asset."),
]


def asking(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add these options; the command takes them as one `asked`."""

    @wraps(command)
    def called(**given: Any) -> Any:
        asked = {name: given.pop(name) for name in _NAMES}
        return command(asked=_chosen(asked), **given)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


_NAMES = (
    *("assets", "start", "end", "partitions", "filter", "chunk_size", "target_chunk"),
    "max_concurrent_runs",
    *("include_upstream", "max_upstream_depth", "include_downstream", "only_missing", "priority", "newest_first"),
    "name",
)


def _chosen(given: dict[str, Any]) -> dict[str, Any]:
    """As `CreateBackfill` and `PreviewBackfill` have it."""
    size, seconds = given.pop("chunk_size"), given.pop("target_chunk")
    if size is not None and seconds is not None:
        raise click.UsageError("--chunk-size and --target-chunk both say how large a chunk is: give one of them.")
    return {**given, "target_chunk_seconds": seconds, **({} if size is None else {"chunk_size": size})}
