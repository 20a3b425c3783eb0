"""The command `help`: a page or the options of a command, as it is into a pipe, and rendered on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from locallb.cli.commands.help import reasons
from locallb.cli.failures import Exit
from locallb.cli.grammar import ALIASES, COMMANDS
from locallb.cli.service_output import help_of
from locallb.cli.watching.board import FAILED, NO_ANSWER, UPDATING
from locallb.kubernetes.status import WAITING
from locallb.model.reasons import Reason
from locallb.planning.service_rows import NOT_DEPLOYED, PARTS_REFUSED
from tests.support.own_projects import run
from tests.support.pages import CHECKOUT, anchors

LOCALLB = Path(sys.executable).parent / "locallb"


@pytest.mark.parametrize("words", ["up", "state check", "stack rm", "get", "ref", "state ch"])
def test_help_of_a_command_is_what_the_command_itself_prints(words: str) -> None:
    """Each word may be a beginning; another name of a command counts."""
    whole = {"ref": "refresh", "state ch": "state check"}.get(words, words)
    done = run("help", *words.split())
    assert done.code == Exit.OK
    assert done.out == run(*whole.split(), "--help").out
    assert done.out.startswith("usage: locallb ")


@pytest.mark.parametrize("command", [*COMMANDS, *ALIASES])
def test_every_command_has_a_page_or_its_options(command: str) -> None:
    """A page where there is one of that name."""
    done = run("help", command)
    assert done.code == Exit.OK
    assert done.out.startswith(("# ", "usage: "))


@pytest.mark.parametrize("code", [*Reason, NOT_DEPLOYED, PARTS_REFUSED, WAITING, "NotBound"])
def test_every_reason_has_a_section_that_is_shown_by_its_code(code: str) -> None:
    """Also by the anchor that documents name: the heading in lower case."""
    done = run("help", code)
    assert done.code == Exit.OK, done.err
    assert done.out.startswith(f"# {code}\n")
    assert done.out.count("#") == 1 + done.out.count(".md#")
    page, _, anchor = help_of(code)["help"].partition("#")
    assert anchor in anchors(CHECKOUT / "docs" / page)


def test_no_section_is_about_a_reason_that_no_object_has() -> None:
    """One that is renamed has its section renamed."""
    assert reasons().keys() == {*Reason, NOT_DEPLOYED, PARTS_REFUSED, WAITING, "NotBound", UPDATING, FAILED, NO_ANSWER}


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        ("wa", "'wa' may be wait or watch: write more of it"),
        ("nothing", "there is no page about 'nothing', and no such command"),
        ("state nothing", " state` has no 'nothing'; `"),
        ("up dev", " up` has no 'dev'; `"),
        ("stack r", "'r' may be remove or rm"),
        ("configuration more", "has no 'configuration'; `"),
    ],
)
def test_what_is_unclear_is_listed(words: str, reported: str) -> None:
    """As one sentence with what there is, or where that is listed."""
    done = run("help", *words.split())
    assert (done.code, done.out) == (Exit.FAILED, "")
    assert reported in done.err


def on_terminal(pager: str) -> str:
    """Return what `help watch` shows on a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "PAGER": pager}
    environment.pop("NO_COLOR", None)
    command = [str(LOCALLB), "help", "watch"]
    with subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while part := _read(ours):
            shown += part
        os.close(ours)
        assert process.wait(60) == 0
    return shown.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # as Linux says that the other side is closed
        return b""


def test_a_page_is_rendered_on_a_terminal() -> None:
    """Not as Markdown; its end says how to come to the options of the command."""
    shown = on_terminal("")
    assert "Keeping a stack in sync" in shown
    assert "# Keeping a stack in sync" not in shown
    assert "\x1b[" in shown
    assert "watch --help" in shown[-600:]


def test_a_page_is_shown_by_the_pager_that_is_named(tmp_path: Path) -> None:
    """With its options, and the variables with which `less` shows colours."""
    pager = tmp_path / "a pager"
    pager.write_text('#!/bin/sh\necho "pager $1 $LESS"; exec cat\n')
    pager.chmod(0o755)
    shown = on_terminal(f"'{pager}' -x")
    assert shown.startswith("pager -x FRX")
    assert "Keeping a stack in sync" in shown


@pytest.mark.parametrize("pager", ["/nonexistent", "'"])
def test_a_pager_that_cannot_be_used_keeps_no_page_away(pager: str) -> None:
    """A warning says so."""
    shown = on_terminal(pager)
    assert "PAGER can't be used: " in shown
    assert "Keeping a stack in sync" in shown
