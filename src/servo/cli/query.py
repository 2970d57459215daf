"""`servo query`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from servo.cli.opening import needs_folder, read_ahead, server
from servo.cli.options import json_option, service
from servo.cli.output import as_json as echo_json
from servo.cli.output import plain_struct, table
from servo.cli.values import moment, plain

if TYPE_CHECKING:
    from servo.projections import Watermark


@click.command()
@click.argument("sql", required=False)
@click.option("--as-of", metavar="TIME|EVENT_ID", help="Answer as of then: 2025-01-15, 2025-01-15T10:30:00Z, an id.")
@click.option("--wait-for", metavar="EVENT_ID", help="Wait until this event is visible.")
@click.option("--timeout", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds to wait.")
@click.option("--tables", is_flag=True, help="List the tables and their columns instead.")
@json_option
def query(
    *, sql: str | None, as_of: str | None, wait_for: str | None, timeout: float, tables: bool, as_json: bool
) -> None:
    """Run one SELECT over the projections, as of the ledger's head.

    On a terminal the answer is a table that fits; in a pipe it is tab-separated and whole.

    \b
    servo query "SELECT status, count(*) FROM runs GROUP BY ALL"
    servo query "FROM partition_status" --as-of 2025-01-15T10:30:00Z --json
    """
    if tables:
        if sql is not None:
            raise click.UsageError("--tables takes no SQL.")
        _tables(as_json)
        return
    if sql is None:
        raise click.UsageError("Missing argument 'SQL'.")
    if as_of is not None and wait_for is not None:
        raise click.UsageError("--as-of and --wait-for exclude each other.")
    if server() is not None:
        needs_folder()
    read_ahead()
    from servo.operations.moments import parse_moment

    with service(as_json=as_json) as servo:
        when = None if as_of is None else parse_moment(as_of)
        answer = servo.query(sql, as_of=when, wait_for_event_id=wait_for, timeout=timeout)
    if as_json:
        rows = [[plain(cell) for cell in row] for row in answer.rows]
        echo_json({"columns": answer.columns, "rows": rows, "watermark": watermark(answer.watermark)})
        return
    mark = answer.watermark
    at = "before the first event" if mark.occurred_at is None else f"as of {moment(mark.occurred_at)}"
    count = "1 row" if len(answer.rows) == 1 else f"{len(answer.rows):,} rows"
    table(answer.columns, answer.rows, f"{count} · {at} · position {mark.position}")


def watermark(mark: Watermark) -> Any:
    """How much of the ledger an answer knows of, as JSON."""
    return plain_struct(mark)


def _tables(as_json: bool) -> None:
    from servo.runtime.service import Service

    found = Service.tables()
    if as_json:
        echo_json({"tables": [plain_struct(one) for one in found]})
        return
    rows = [(one.name, name, kind) for one in found for name, kind in one.columns.items()]
    table(["table", "column", "holds"], rows)
