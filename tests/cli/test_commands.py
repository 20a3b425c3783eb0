"""Every command that the parser knows is there to be run."""

from __future__ import annotations

from locallb.cli import run
from locallb.cli.syntax.grammar import COMMANDS


def test_each_command_of_the_parser_has_a_function() -> None:
    """They are named in words, as each is loaded by itself; nobody names one that the parser doesn't know."""
    named = {**run.COMMANDS, **run.WITHOUT_STACK}
    assert set(named) == set(COMMANDS)
    assert all(callable(run._load(place)) for place in (*named.values(), run.OFFLINE))
