"""What commands are declared with: `command`, and the options and arguments that they share, with their help."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

from servo.cli.opening import services
from servo.cli.output import echo_json

if TYPE_CHECKING:
    from servo.cli.opening import Services

F = TypeVar("F", bound=Callable[..., Any])
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_BEFORE = re.compile(r"(.*[\s(]|)(\d*\+)?")  # of a selection, what may stand before a name


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Answer(NamedTuple):
    """What a command answers: a document for `--json`, a function that shows it to people, and the exit code."""

    document: Any
    show: Callable[[], object]
    code: int = 0


def command(
    name: str | None = None, opening: Callable[..., AbstractContextManager[Any]] = services, **how: bool
) -> Callable[[Callable[..., Answer | int]], click.Command]:
    """Declare a command with `--json`, which takes first what is opened for it: by default the services.

    It returns its answer. One that takes `as_json` may print by itself, and returns the exit code.
    """

    def declare(function: Callable[..., Answer | int]) -> click.Command:
        prints = "as_json" in signature(function).parameters

        @wraps(function)
        def called(*, as_json: bool, **given: Any) -> int:
            if prints:
                given["as_json"] = as_json
            with opening(as_json=as_json, **how) as opened:
                answer = function(opened, **given)
                if isinstance(answer, int):
                    return answer
                if as_json:
                    echo_json(answer.document)
                else:
                    answer.show()
                return answer.code

        parameters: list[click.Parameter] = vars(called).setdefault("__click_params__", [])
        if all(parameter.name != "as_json" for parameter in parameters):
            json_option(called)
            parameters.insert(0, parameters.pop())  # in the help it is the last
        return click.command(name)(called)

    return declare


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────


class _Moment(click.ParamType[datetime]):
    """A time as people write it, and as Servo does: 2025-01-15, 2025-01-15T06:00, with Z or an offset; else UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value).strip())
        except ValueError:
            self.fail(f"{value!r} is not a time: write 2025-01-15T06:00:00Z or 2025-01-15.", param, ctx)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


MOMENT = _Moment()


def past(text: str | None) -> datetime | str | None:
    """A time of the past or an event id, as people write it; None if nothing is given."""
    from servo.operations.fields import parse_moment  # noqa: PLC0415 (`--help` does without msgspec)

    return None if text is None else parse_moment(text)


def given(**options: Any) -> dict[str, Any]:
    """The options that were given; those left out take the defaults of the request."""
    return {name: value for name, value in options.items() if value not in (None, (), {})}


def pairs(_: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Parse `key=value`, given any number of times."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r:.80} is not of the form key=value", param=parameter)
        found[name] = text
    return found


# ── completion ───────────────────────────────────────────────────────────────────────────────────────────────────


def completer(items: Callable[[Services], Iterable[CompletionItem]], *, upper: bool = False) -> Completer:
    """Offer these items as far as they begin with what was typed, in capitals if they are always written so."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found: list[CompletionItem] = []
        with suppress(Exception), services() as here:  # the command reports errors better
            found = list(items(here))
        return [item for item in found if item.value.startswith(incomplete.upper() if upper else incomplete)]

    return complete


def complete_assets(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The assets of the project, by name or by key; nothing where the project cannot be read at a glance."""
    begun = _BEFORE.match(incomplete)
    before = "" if begun is None else begun[0]
    word = incomplete[len(before) :]
    names: Iterable[str] = ()
    with suppress(Exception):  # as above
        from servo.cli.asset import asset_names  # noqa: PLC0415 (requests and answers come with it)

        names = asset_names()
    return [CompletionItem(before + name) for name in names if name.startswith(word)]


# ── arguments and options ────────────────────────────────────────────────────────────────────────────────────────


def json_option(command: F) -> F:
    """Add `--json`, which the command takes as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Answer as JSON, and errors on stderr likewise.")(
        command
    )


asset_argument = click.argument("asset", shell_complete=complete_assets)
selection_argument = click.argument(
    "select", metavar="SELECTION...", nargs=-1, required=True, shell_complete=complete_assets
)
partition_argument = click.argument("partition_key", metavar="[PARTITION]", default="")
run_argument = click.argument("run_id", metavar="RUN")
as_of_option = click.option(
    "--as-of", metavar="TIME|EVENT_ID", help="Then: with the definitions and the state of that time."
)
which_option = click.option(
    "--partitions", metavar="P", help="Which: 2025-01-15, 2025-01-01..2025-01-31, region=eu, latest, all."
)
stale_option = click.option(
    "--stale", is_flag=True, help="Of the selection, what should run now: stale, missing, and what follows."
)
priority_option = click.option("--priority", type=int, default=0, show_default=True, help="Higher goes first.")


def limited(default: int = 50, words: str = "At most so many, newest first.") -> Callable[[F], F]:
    """Add `--limit`."""
    return click.option("--limit", type=click.IntRange(min=1), default=default, show_default=True, help=words)


def reasoned(*, required: bool = False) -> Callable[[F], F]:
    """Add `--reason`."""
    return click.option("--reason", required=required, metavar="WHY", help="Is recorded with it.")


def once(what: str) -> Callable[[F], F]:
    """Add `--request-id`: the same id again is the same thing."""
    return click.option("--request-id", metavar="ID", help=f"The same id again is the same {what}.")


def waiting(what: str, *, default: bool) -> Callable[[F], F]:
    """Add `--wait`."""
    words = f"Wait until {what} has ended."
    return click.option("--wait/--no-wait", default=default, show_default=True, help=words)


def steering(shown_by: str, *, reason: bool = True) -> Callable[[F], F]:
    """Add `--expected-version`, as a command shows it, and `--reason`."""

    def add(command: F) -> F:
        words = f"Only if `{shown_by}` still {'has' if shown_by == 'show' else 'shows'} this version; else exit 4."
        expecting = click.option("--expected-version", "expected_state_version", type=int, metavar="N", help=words)
        return expecting(reasoned()(command) if reason else command)

    return add
