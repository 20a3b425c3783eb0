"""Commands in sentences: as the user can paste them, wherever and however local-lb was called."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.cli.arguments import parse
from locallb.cli.grammar import make_parser
from locallb.cli.run import Invocation

CHECKOUT = Path(__file__).parents[2]
NEAR = Invocation(".venv/bin/locallb", ".venv/bin/locallb")
MINE = Invocation("locallb", "/p/.venv/bin/locallb", stack="mine")
MAKE = Invocation(".venv/bin/locallb", ".venv/bin/locallb", stack="mine", by_make=True)
FAR = Invocation("locallb", "locallb", directory="/a b")


@pytest.mark.parametrize(
    ("invocation", "text", "expected"),
    [
        (Invocation(), "x has no proxy; `locallb up` starts it", "x has no proxy; `locallb up` starts it"),
        (NEAR, "`locallb gc --yes` removes", "`.venv/bin/locallb gc --yes` removes"),
        (MINE, "`locallb up`", "`locallb --stack mine up`"),
        (MINE, "as root, `sudo locallb host setup`", "as root, `sudo /p/.venv/bin/locallb --stack mine host setup`"),
        (MAKE, "`locallb up`, `locallb destroy`", "`make up STACK=mine`, `make down STACK=mine`"),
        (MAKE, "`locallb gc`", "`.venv/bin/locallb --stack mine gc`"),
        (MAKE, "`sudo locallb status`", "`sudo .venv/bin/locallb --stack mine status`"),
        (FAR, "`locallb up`", "`locallb -C '/a b' up`"),
        (NEAR, "a locallb up without marks, `docker pull`", "a locallb up without marks, `docker pull`"),
    ],
)
def test_commands_are_rendered_as_they_were_given(invocation: Invocation, text: str, expected: str) -> None:
    """With the path, the directory and the stack; a target of make where make called us and has one."""
    assert invocation.render(text) == expected


@given(st.text(max_size=80), st.sampled_from([NEAR, MINE, MAKE, FAR]))
def test_text_that_is_no_command_is_not_rewritten(text: str, invocation: Invocation) -> None:
    """Whatever a cluster's names hold."""
    if "`" not in text:
        assert invocation.render(text) == text


def texts(tree: ast.AST) -> Iterator[str]:
    """Return the texts of a module that aren't docstrings."""
    nodes = [*ast.walk(tree)]
    reported = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in reported:
            yield node.value


@pytest.mark.checkout
def test_every_command_that_a_sentence_names_exists() -> None:
    """Each can be parsed, and each target that we name is one of the Makefile's."""
    named = {
        command
        for folder in ("locallb",)
        for path in (CHECKOUT / folder).rglob("*.py")
        if "locallb " in (module := path.read_text())
        for text in texts(ast.parse(module))
        for command in re.findall(r"`(?:sudo )?locallb ([^`]+)`", text)
    }
    assert len(named) > 5
    parser = make_parser()
    for command in named - {"--help"}:
        parser.parse_args(shlex.split(command))
    makefile = (CHECKOUT / "Makefile").read_text()
    for command in ("up", "destroy", "watch", "preview", "status", "doctor"):
        target = MAKE.render(f"`locallb {command}`").split()[1]
        assert f"\n{target}: " in makefile


def test_the_invocation_is_the_process_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest path from here; the bare name where PATH finds the same file."""
    program = tmp_path / ".venv/bin/locallb"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(program), "status"])
    monkeypatch.setenv("PATH", "/usr/bin")
    assert Invocation.of(parse(["--stack", "x", "status"])) == Invocation(
        ".venv/bin/locallb", ".venv/bin/locallb", stack="x"
    )
    monkeypatch.setenv("PATH", str(program.parent))
    assert Invocation.of(parse(["-C", "p", "status"])) == Invocation("locallb", ".venv/bin/locallb", directory="p")
    monkeypatch.setattr("sys.argv", ["-m"])
    assert Invocation.of(parse(["status"])) == Invocation()
