"""Who may ask the server over the network, and for what.

A token belongs to this tenant and workspace. Its bearer is recorded under its name. These commands work on the
ledger itself, never through a server: who can write the ledger decides who may ask.
"""

from __future__ import annotations

import click

from servo.cli.opening import actor, project
from servo.cli.options import json_option
from servo.cli.output import echo_json, note, table
from servo.runtime.tokens import Tokens, lifetime

_ROLES = ("viewer", "operator", "approver", "admin")


@click.command()
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
@json_option
def create(name: str, role: str, expires_in: str | None, as_json: bool) -> None:
    """Make a token and show it, once: it is kept as a hash only."""
    lives = None if expires_in is None else lifetime(expires_in)
    with project(as_json=as_json, create=True, local=True) as opened:
        made = Tokens(opened).create(name, role, lives=lives, actor=actor())
        if as_json:
            echo_json(made)
            return
        click.echo(made.token)
        until = "until it is revoked" if made.expires_at is None else f"until {made.expires_at:%Y-%m-%d %H:%M} UTC"
        click.secho(
            f"{made.name}, {made.role} of {made.tenant}/{made.workspace}, {until}. It is not shown again: "
            "keep it where secrets are kept, and give it as SERVO_TOKEN.",
            dim=True,
            err=True,
        )


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that have expired or were revoked.")
@json_option
def list_tokens(everything: bool, as_json: bool) -> None:
    """List tokens, oldest first. Of the tokens themselves nothing is known here."""
    with project(as_json=as_json, local=True) as opened:
        found = Tokens(opened).list(everything=everything)
        if as_json:
            echo_json({"tokens": found})
            return
        if not found:
            note("no tokens: `servo token create NAME` makes one")
            return
        rows = [
            (one.name, one.role, one.status, one.expires_at, one.created_at, one.created_by, one.token_id)
            for one in found
        ]
        table(("name", "role", "status", "expires", "created", "by", "id"), rows)


@click.command()
@click.argument("named", metavar="TOKEN")
@click.option("--reason", help="Why, for the record.")
@json_option
def revoke(named: str, reason: str | None, as_json: bool) -> None:
    """End a token, given its name or id, or the token itself where it was found.

    Servers refuse it within two seconds.
    """
    with project(as_json=as_json, local=True) as opened:
        done = Tokens(opened).revoke(named, reason=reason, actor=actor())
        if as_json:
            echo_json(done)
        elif done.duplicate:
            click.echo(f"{done.name} was revoked before, at {done.revoked_at:%Y-%m-%d %H:%M} UTC")
        else:
            click.echo(f"✓ {done.name} is revoked")
