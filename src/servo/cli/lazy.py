"""A group of commands whose modules are imported when they are called: `--help` must not wait for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from servo.errors import MissingExtra


class ClosedPipe(Exception):  # noqa: N818 (nobody did anything wrong: `… | head` has seen enough)
    """Whoever read our output has stopped reading."""


class LazyGroup(click.Group):
    """Knows its commands by name, place (`module:attribute`) and one line of help."""

    def __init__(self, *args: Any, places: dict[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._places})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._places:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._places[cmd_name][0].partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except ModuleNotFoundError as problem:
            if problem.name != module:
                raise
            raise MissingExtra(
                f"`servo {cmd_name}` is not part of this installation", hint="install a newer Servo"
            ) from None
        assert isinstance(found, click.Command)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Under another name, or Click would turn it into an ordinary failure.
            raise ClosedPipe from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._places[name][1]) for name in self.list_commands(ctx) if name in self._places]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self._places or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        # Click would import every command to see which one was meant.
        from difflib import get_close_matches

        meant = get_close_matches(name, self._places, n=1)
        hint = f" Did you mean {meant[0]!r}?" if meant else ""
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)
