"""Who may ask the server over the network, and for what.

A token belongs to this tenant and workspace. Its bearer is recorded under its name. These commands work on the
ledger itself, never through a server: who can write the ledger decides who may ask.
"""

from __future__ import annotations

import click

from servo.cli.opening import actor, project
from servo.cli.options import Answer, command
from servo.cli.output import aside, note, table
from servo.runtime.tokens import Tokens, lifetime
from servo.runtime.wiring import Project

_ROLES = ("viewer", "operator", "approver", "admin")


@command(opening=project, create=True, local=True)
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(_ROLES),
    default="viewer",
    show_default=True,
    help="What it may do: look; also start, stop and change work; also decide checkpoints; everything.",
)
@click.option(
    "--expires-in", metavar="TIME", help="How long it lives: 30m, 12h, 90d, 8w. Without: until it is revoked."
)
def create(opened: Project, name: str, role: str, expires_in: str | None) -> Answer:
    """Make a token and show it, once: it is kept as a hash only."""
    lives = None if expires_in is None else lifetime(expires_in)
    made = Tokens(opened).create(name, role, lives=lives, actor=actor())

    def show() -> None:
        click.echo(made.token)
        until = "until it is revoked" if made.expires_at is None else f"until {made.expires_at:%Y-%m-%d %H:%M} UTC"
        aside(
            f"{made.name}, {made.role} of {made.tenant}/{made.workspace}, {until}. It is not shown again: "
            "keep it where secrets are kept, and give it as SERVO_TOKEN."
        )

    return Answer(made, show)


@command("list", opening=project, local=True)
@click.option("--all", "everything", is_flag=True, help="Also those that have expired or were revoked.")
def list_tokens(opened: Project, everything: bool) -> Answer:
    """List tokens, oldest first. Of the tokens themselves nothing is known here."""
    tokens = Tokens(opened).list(everything=everything)
    rows = [
        (one.name, one.role, one.status, one.expires_at, one.created_at, one.created_by, one.token_id) for one in tokens
    ]

    def show() -> None:
        if rows:
            table(("name", "role", "status", "expires", "created", "by", "id"), rows)
        else:
            note("no tokens: `servo token create NAME` makes one")

    return Answer({"tokens": tokens}, show)


@command(opening=project, local=True)
@click.argument("named", metavar="TOKEN")
@click.option("--reason", help="Why, for the record.")
def revoke(opened: Project, named: str, reason: str | None) -> Answer:
    """End a token, given its name or id, or the token itself where it was found.

    Servers refuse it within two seconds.
    """
    done = Tokens(opened).revoke(named, reason=reason, actor=actor())
    words = f"✓ {done.name} is revoked"
    if done.duplicate:
        words = f"{done.name} was revoked before, at {done.revoked_at:%Y-%m-%d %H:%M} UTC"
    return Answer(done, lambda: click.echo(words))
