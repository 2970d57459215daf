"""The way in: `servo …`. Every error ends here, as one line or one JSON object on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from servo import __version__
from servo.cli.lazy import ClosedPipe, LazyGroup
from servo.errors import ServoError

INTERRUPTED = 130  # 128 + SIGINT, as shells say it
CLOSED_PIPE = 141  # 128 + SIGPIPE

cli = LazyGroup(
    "servo",
    help="Servo: a partition-aware orchestrator for data assets that Spark computes.",
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict. Completion: see docs/reference/cli.md.",
    context_settings={"help_option_names": ["-h", "--help"]},
    places={
        "demo": ("servo.cli.demo:demo", "Show what Servo does, from nothing to results."),
        "doctor": ("servo.cli.doctor:doctor", "Check this machine and this project; change nothing."),
        "ledger": ("servo.cli.ledger:ledger", "Verify, replay, compact, archive and export the ledger."),
        "query": ("servo.cli.query:query", "Run one SELECT over the projections."),
    },
)
click.version_option(__version__, "-V", "--version", prog_name="servo")(cli)


def main() -> None:
    """The entry point of the `servo` command."""
    if sys.stdout is None:  # somebody closed it
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 (it lives as long as the program)
    code = run(sys.argv[1:])
    unwritten = False
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = CLOSED_PIPE
    except OSError:
        code, unwritten = code or 1, True
    if code == CLOSED_PIPE or unwritten:
        # Python would complain when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if code == INTERRUPTED:
        # What was at work is simply left: nothing half-done is ever visible.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _interruptibly(work: Callable[[], Any]) -> Any:
    """Work in a thread of its own, so that the main one hears Ctrl-C: databases at work do not."""
    result: list[Any] = []
    failure: list[BaseException] = []

    def do() -> None:
        try:
            result.append(work())
        except BaseException as problem:  # noqa: BLE001 (it goes on in the main thread)
            failure.append(problem)

    thread = Thread(target=do, name="servo", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def run(args: Sequence[str]) -> int:
    """Run one command; its exit code."""
    as_json = "--json" in args
    try:
        result = _interruptibly(lambda: cli.main(list(args), prog_name="servo", standalone_mode=False))
    except ServoError as problem:
        _say(problem.code, problem.message, problem.hint, as_json=as_json)
        return problem.exit_code
    except NoArgsIsHelpError as problem:
        problem.show()
        return problem.exit_code
    except click.UsageError as problem:
        where = problem.ctx.command_path if problem.ctx else "servo"
        _say("usage", problem.format_message(), f"see `{where} --help`", as_json=as_json)
        return problem.exit_code
    except click.ClickException as problem:
        _say("failed", problem.format_message(), None, as_json=as_json)
        return problem.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted", "interrupted", None, as_json=as_json)
        return INTERRUPTED
    except ClosedPipe:
        return CLOSED_PIPE
    except OSError as problem:
        # Servo's own files have errors of their own; what is left is where the answer was to go.
        _say("output", f"the answer cannot be written: {problem.strerror or problem}", None, as_json=as_json)
        return 1
    return result if isinstance(result, int) else 0


def _say(code: str, message: str, hint: str | None, *, as_json: bool) -> None:
    if as_json:
        import json

        error = {"code": code, "message": message, "hint": hint}
        click.echo(json.dumps({"error": error}, ensure_ascii=False), err=True)
        return
    text = f"servo: {message}" + (f" ({hint})" if hint else "")
    click.echo(" ".join(text.split()), err=True)
