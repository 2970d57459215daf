"""The table of commands, beside the commands themselves."""

from __future__ import annotations

from importlib import import_module

import click
import pytest

from servo.cli.commands import COMMANDS
from servo.cli.lazy import Noun
from servo.cli.main import cli

NOUNS = {name: place for name, place in COMMANDS.items() if isinstance(place, Noun)}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_table_says(name: str) -> None:
    assert isinstance(cli.get_command(click.Context(cli), name), click.Command)


@pytest.mark.parametrize("name", NOUNS)
def test_the_table_has_the_verbs_of_a_noun_and_the_beginning_of_their_help(name: str) -> None:
    noun = NOUNS[name]
    found = [one for one in vars(import_module(noun.module)).values() if isinstance(one, click.Command)]
    assert sorted(noun.verbs) == sorted(str(one.name) for one in found)
    for verb in found:
        assert " ".join(str(verb.help).split()).startswith(noun.verbs[str(verb.name)]), verb.name
