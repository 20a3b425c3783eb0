"""An argument parser with errors that name the mistake and suggest a similar word.

Not here: the set of words (`grammar`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NoReturn

from locallb.model.texts import nearest

ANSWER = "answer"
"""Word that completion scripts pass instead of a shell's name; reserved for them."""
_ELSEWHERE = {
    **dict.fromkeys(("down", "delete", "remove", "rm", "stop", "uninstall"), "destroy"),
    **dict.fromkeys(("apply", "start", "deploy", "install", "run", "serve"), "up"),
    **dict.fromkeys(("plan", "diff"), "preview"),
    **dict.fromkeys(("ls", "list", "show", "ps"), "status"),
    **dict.fromkeys(("check", "logs"), "doctor"),
    "version": "--version",
}
"""What other programs call it, if that is a word of ours."""
COMMAND = "COMMAND"
"""What the first word is called."""
_MISSING = "the following arguments are required: "
_VALUE = "ignored explicit argument"


class Misunderstood(SystemExit):
    """A command line that can't be understood; the sentence is on standard error."""

    def __init__(self, command: str, sentence: str) -> None:
        super().__init__(2)
        self.command, self.sentence = command, sentence
        self.json = False
        """Whether a document is expected, too."""


class Parser(argparse.ArgumentParser):
    """A parser that takes options as they are called: a misspelt one is never taken for another that begins so."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - whatever argparse takes
        super().__init__(allow_abbrev=False, **given)

    def take(self, terms: Sequence[str] | None) -> argparse.Namespace:
        """Parse a whole command line. Raises Misunderstood."""
        given, more = self.parse_known_args(terms)
        if more:
            self.error(_superfluous(given, more), given.command)
        return given

    def error(self, message: str, command: str = "") -> NoReturn:
        """Print the usage and what is wrong of a command, by default the parser's own. Raises Misunderstood."""
        name = message.removeprefix(_MISSING)
        choices = next((action.choices for action in self._actions if action.metavar == name and action.choices), None)
        if choices and name == COMMAND:
            self._print_message(f"{self.description}\n`{self.prog} --help` lists all commands.\n\n", sys.stderr)
            message = f"{name} is missing"
        else:
            message = f"{name} is missing: {_listed(choices)}" if choices else message
            message = message.replace(_VALUE, "takes no value, but was given")
            self.print_usage(sys.stderr)
        self._print_message(f"{self.prog}: error: {message}\n", sys.stderr)
        raise Misunderstood(command or " ".join(self.prog.split()[1:2]), message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401 - as argparse has it
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"{value!r} isn't {_remedy(action, str(value))}")


class LateParser:
    """The parser of a command, made when it is first asked for anything: most never are, and all take 15 ms."""

    def __init__(self, add: Callable[[Parser], None], **given: Any) -> None:  # noqa: ANN401 - whatever argparse takes
        def made() -> Parser:
            parser = Parser(**given)
            add(parser)
            return parser

        self._made = cache(made)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as that parser has it
        return getattr(self._made(), name)


class Renamed(argparse.Action):
    """An option by its former name: it works, and a note says the present one, which is its `const`."""

    def __init__(self, option_strings: Sequence[str], dest: str, const: str) -> None:
        super().__init__(option_strings, dest, nargs=0, const=const, help=argparse.SUPPRESS)

    def __call__(self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, *given: object) -> None:
        setattr(namespace, self.dest, True)
        sys.stderr.write(f"note: {given[-1]} is called {self.const} now\n")


def _remedy(action: argparse.Action, value: str) -> str:
    choices = [str(choice) for choice in action.choices or () if choice != ANSWER]
    if action.option_strings and "," in value and {*value.split(",")} <= {*choices}:
        repeated = " ".join(f"{action.option_strings[-1]} {part}" for part in value.split(","))
        return f"one of {_listed(choices)}; say it once for each: {repeated}"
    existing = _ELSEWHERE.get(value, "") if action.dest == "command" else ""
    near = existing or nearest(value.lower(), choices)
    if near and action.metavar == COMMAND:  # there are more than anybody reads
        return f"a command; did you mean {near}?"
    return f"one of {_listed(choices)}" + (f"; did you mean {near}?" if near else "")


def _listed(choices: Iterable[object]) -> str:
    return ", ".join(str(choice) for choice in choices if choice != ANSWER)


def _superfluous(given: argparse.Namespace, more: Sequence[str]) -> str:
    """Return what to say of words that a command doesn't take."""
    action = getattr(given, "action", None)
    command = f"{given.command} {action}" if action else str(given.command)
    sentence = f"`{command}` doesn't take {' '.join(map(repr, more))}"
    if more[0].startswith("-"):
        return f"{sentence}; `locallb {command} --help` lists what it takes"
    target = f", a Service `--target {more[0]}`" if hasattr(given, "targets") else ""
    return f"{sentence}; a stack is named by `--stack {more[0]}`{target}"
