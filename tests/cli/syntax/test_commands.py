"""Every command that the parser knows is there to be run."""

from __future__ import annotations

import pytest

from locallb.cli import grammar, run
from locallb.cli.commands import preview
from locallb.cli.grammar import COMMANDS, make_parser
from tests.support.commands import WORDS


def test_each_command_of_the_parser_has_a_function() -> None:
    """They are named in words, as each is loaded by itself; nobody names one that the parser doesn't know."""
    named = {**run.COMMANDS, **run.WITHOUT_STACK}
    assert set(named) == set(COMMANDS)
    assert all(callable(run._load(place)) for place in (*named.values(), *run.OFFLINE.values()))


def test_only_the_command_that_is_named_gets_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """By any of its names; a mistake in making them is seen as it is."""
    made: list[str] = []
    monkeypatch.setattr(grammar, "OPTIONS", ((tuple(COMMANDS), lambda command, _: made.append(command.prog)),))
    parser = make_parser()
    parser.parse_args(["describe"])
    parser.parse_args(["up"])
    assert made == ["locallb status", "locallb up"]
    monkeypatch.setattr(grammar, "OPTIONS", ((("up",), lambda command, _: command.nothing),))
    with pytest.raises(AttributeError, match="nothing"):
        make_parser().parse_args(["up"])


def test_each_format_of_a_report_has_a_function() -> None:
    """Likewise: `tree` alone is printed by the commands themselves."""
    assert all(callable(preview.writer(form)) for form in preview.FORMATS)
    parse = make_parser().parse_args
    assert all(parse(["preview", "--format", form]).format == form for form in ("tree", *preview.FORMATS))


def test_each_command_is_run_at_any_moment() -> None:
    """One that is new is killed, starved and cut off as the others are (`tests/e2e/test_any_moment.py`)."""
    assert {terms[0] for terms in WORDS} - {"--help", "--version"} == set(COMMANDS)
