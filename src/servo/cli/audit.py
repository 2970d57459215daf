"""Report how a partition came about, and prove the report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from servo.cli.opening import Services, services
from servo.cli.options import Answer, asset_argument, command, json_option, partition_argument, past
from servo.cli.output import echo_json, note
from servo.errors import LedgerNotFound, NotAllowed, StorageFailed
from servo.lineage.report import key_text, parse, to_json
from servo.operations.lineage.requests import GetReport, KeepReport
from servo.ui.marks import counted

if TYPE_CHECKING:
    from servo.answers.lineage import Verified
    from servo.lineage.report import Report


_MOST_SHOWN = 20


@command()
@asset_argument
@partition_argument
@click.option("--as-of", metavar="TIME|EVENT_ID", help="What was current then, and what was known of it.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["json", "pdf"]),
    help="JSON, which can be verified, or a PDF to read; by default after the file's name.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write it, else stdout; given twice, both files are of the same report.",
)
@click.option("--keep/--no-keep", default=True, help="Have vacuum spare the data that it cites (the default), or not.")
def report(
    here: Services,
    *,
    asset: str,
    partition_key: str,
    as_of: str | None,
    kind: str | None,
    outputs: tuple[Path, ...],
    keep: bool,
    as_json: bool,
) -> Answer | int:
    """Report how a partition came about: what ran, from which inputs, checked and approved by whom, with the proof.

    \b
    servo audit report revenue 2025-01 > report.json
    servo audit report revenue 2025-01 --output report.json --output report.pdf
    servo audit report revenue 2025-01 --as-of 2025-02-01T00:00:00Z --output report.json
    """
    if kind == "pdf" and not outputs and (as_json or sys.stdout.isatty()):
        raise click.UsageError("a PDF needs --output FILE.")
    made = _made(here, asset, partition_key, as_of, keep=keep)

    def document(chosen: str) -> bytes:
        return to_json(made) if chosen == "json" else _printed(made)

    if not outputs:
        click.echo(document(kind or "json"), nl=False)
        return 0
    files = [(path, kind or ("pdf" if path.suffix.lower() == ".pdf" else "json")) for path in outputs]
    for path, chosen in files:
        _write(path, document(chosen))

    def confirm() -> None:
        written = " and ".join(str(path) for path, _ in files)
        click.echo(f"✓ {written}: {_label(made)}, proved by {counted(len(made.proof.events), 'event')}")
        note(f"  report hash {made.report_hash}")

    return Answer({"files": [{"file": str(path), "format": chosen} for path, chosen in files], **_head(made)}, confirm)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--ledger/--offline",
    "with_ledger",
    default=None,
    help="Ask this project's ledger as well, or do not; by default, ask it if there is one.",
)
@click.option("--report-hash", metavar="HASH", help="The hash that it must have, as the PDF's footer says it.")
@json_option
def verify(*, file: Path, with_ledger: bool | None, report_hash: str | None, as_json: bool) -> int:
    """Check a report: every link of the chain, and every statement against the events that it cites.

    Works in an empty folder. In a project, the ledger must have the same events, and none that the report leaves out.
    """
    read = parse(file.read_bytes())
    found = _offline(read) if with_ledger is False else _with_ledger(read, demanded=with_ledger is True)
    faults = [{"path": fault.path, "reason": fault.reason} for fault in found.faults]
    if report_hash is not None and report_hash.strip().lower() != read.report_hash:
        faults.append({"path": "report_hash", "reason": f"is {read.report_hash}, and not {report_hash:.80}"})
    if as_json:
        echo_json(
            {
                "valid": not faults,
                **_head(read),
                "events": found.events,
                "with_ledger": found.with_ledger,
                "faults": faults,
            }
        )
    else:
        _show_verified(read, found, faults)
    return 1 if faults else 0


def _made(here: Services, asset: str, partition: str, as_of: str | None, *, keep: bool) -> Report:
    when = past(as_of)
    if not keep:
        return here.ask(GetReport(asset=asset, partition=partition), as_of=when)
    text = when if when is None or isinstance(when, str) else when.isoformat()
    try:
        return here.ask(KeepReport(asset=asset, partition=partition, as_of=text))
    except NotAllowed as problem:
        if problem.hint is None:
            problem.hint = "or --no-keep: then vacuum may remove what the report cites"
        raise


def _with_ledger(read: Report, *, demanded: bool) -> Verified:
    try:
        with services() as here:
            return here.verify(read)
    except LedgerNotFound:
        if demanded:
            raise
        return _offline(read)


def _offline(read: Report) -> Verified:
    from servo.operations.lineage.audit import verify_offline  # noqa: PLC0415 (DuckDB comes with it)

    return verify_offline(read)


def _show_verified(read: Report, found: Verified, faults: list[dict[str, str]]) -> None:
    ledger = "and the ledger agrees" if found.with_ledger else "offline: no ledger was asked"
    if not faults:
        click.secho(
            f"✓ {_label(read)}: {counted(found.events, 'event')} prove every statement; {ledger}",
            fg="green",
        )
        note(f"  report hash {read.report_hash}")
        return
    click.secho(f"✗ {_label(read)}: the report is not as it was made", fg="red")
    for fault in faults[:_MOST_SHOWN]:
        click.echo(f"  {fault['path']} {fault['reason']}")
    if len(faults) > _MOST_SHOWN:
        note(f"  and {len(faults) - _MOST_SHOWN:,} more; see --json")


def _label(report: Report) -> str:
    return f"{report.asset} {key_text(report.partition)}".strip()


def _head(report: Report) -> dict[str, Any]:
    return {
        "report_hash": report.report_hash,
        "asset": report.asset,
        "partition": report.partition,
        "materialization": report.materialization,
        "workspace": f"{report.workspace.tenant}/{report.workspace.name}",
        "generated_at": report.generated_at,
    }


def _printed(report: Report) -> bytes:
    from servo.lineage.report_page import typeset  # noqa: PLC0415 (the compiler of PDF files comes with it)

    return typeset(report)[0]


def _write(path: Path, document: bytes) -> None:
    try:
        path.write_bytes(document)
    except OSError as problem:
        raise StorageFailed(f"{path}: {problem.strerror}", hint="give another --output") from problem
