"""Completion: scripts for bash, zsh and fish that ask us, and what we answer. It loads no SDK: a key was pressed."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from locallb import safe_files
from locallb.cli.arguments import Arguments
from locallb.cli.commands.help import pages, reasons, subcommands
from locallb.cli.console import Out
from locallb.cli.failures import Exit
from locallb.cli.grammar import COMMANDS, LIVE, MANIFESTS, make_parser
from locallb.cli.parser import ANSWER
from locallb.cli.project import PROJECT_FILE, nearest_project
from locallb.config.parsing import KEYS
from locallb.model.desired import BALANCER, CONFIG, SERVICE_CONFIG
from locallb.model.fields import at, object_of, objects_of, text_of
from locallb.patterns import pattern
from locallb.safe_files import load_yaml
from locallb.storage import paths

_WITH_BACKENDS = (CONFIG, SERVICE_CONFIG)
_ADDRESS = pattern(r'\\?"address\\?":\s*\\?"([0-9a-fA-F.:]+)\\?"')
_LARGEST = 32 << 20
"""Maximum bytes of a state that are read during an interactive completion."""

SCRIPTS = {
    "bash": f"""\
_locallb() {{
    mapfile -t COMPREPLY < <("$1" completion {ANSWER} -- "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null)
}}
complete -o default -F _locallb locallb""",
    "zsh": f"""\
#compdef locallb
_locallb() {{
    local -a answers
    answers=("${{(@f)$("$words[1]" completion {ANSWER} -- "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
    if [[ -n "$answers" ]]; then compadd -a answers; else _files; fi
}}
compdef _locallb locallb""",
    "fish": f"""\
function __locallb
    set -l words (commandline -opc)
    set -l answers ($words[1] completion {ANSWER} -- $words[2..-1] (commandline -ct) 2>/dev/null)
    if test -n "$answers"
        printf '%s\\n' $answers
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c locallb -f -a '(__locallb)'""",
}
_HARMLESS = pattern(r"[\w./@%+=,-]+")
"""What every shell takes as it is; a name with anything else isn't offered."""


def completion(args: Arguments, out: Out) -> int:
    """Print a shell's script, or the completions at the cursor."""
    if args.action == ANSWER:
        out.document("".join(f"{answer}\n" for answer in answers(args.services, args.directory)))
    else:
        out.document(f"{SCRIPTS[args.action]}\n")
    return Exit.OK


def answers(terms: Sequence[str], directory: Path) -> list[str]:
    """Return the completions of the last of `terms`, which is incomplete."""
    *before, begun = terms or ("",)
    line = _Line(make_parser(), before, directory)
    return [answer for answer in line.answers(begun) if answer.startswith(begun) and _HARMLESS.fullmatch(answer)]


class _Line:
    """The words before the cursor, as argparse would take them."""

    def __init__(self, parser: argparse.ArgumentParser, terms: Iterable[str], directory: Path) -> None:
        self._parser = parser
        self._waiting: argparse.Action | None = None
        """Option that expects the next word as its value."""
        self._words: list[str] = []
        """What the command, or its action, was given besides."""
        self._given = {"directory": str(directory), "stack": "dev"}
        for word in terms:
            self._take(word)

    def answers(self, begun: str) -> Iterator[str]:
        """Return all possible next words."""
        if self._waiting:
            yield from self._values(self._waiting)
        elif begun.startswith("-"):
            yield from self._parser._option_string_actions  # noqa: SLF001 - as every completion of argparse does
        else:
            for action in self._positionals():
                yield from self._values(action)

    def _take(self, word: str) -> None:
        if self._waiting:
            self._given[self._waiting.dest] = word
            self._waiting = None
        elif word.startswith("-"):
            action = self._parser._option_string_actions.get(word)  # noqa: SLF001 - as above
            self._waiting = action if action and action.nargs != 0 else None
        else:
            chosen = subcommands(self._parser).get(word)
            self._parser, self._words = (chosen, []) if chosen else (self._parser, [*self._words, word])

    def _positionals(self) -> list[argparse.Action]:
        return self._parser._get_positional_actions()  # noqa: SLF001 - as above

    def _values(self, action: argparse.Action) -> Iterable[str]:
        if action.choices:
            return [choice for choice in action.choices if choice != ANSWER]
        project, stack = self._project(), self._given["stack"]
        if str(action.metavar).startswith("SERVICE"):
            return _balancers(_resources(project, stack))
        if action.metavar == "CONTEXT":
            return _contexts()
        found: Mapping[str, Callable[[], Iterable[str]]] = {
            "stack": lambda: _stacks(project),
            "removed": lambda: _stacks(project),
            "keys": lambda: KEYS,
            "assignments": lambda: () if len(self._words) % 2 else KEYS,
            "names": lambda: _sources(project, stack),
            "backends": lambda: _backends(_resources(project, stack)),
            "side": lambda: (LIVE, MANIFESTS),
            "topic": self._topics,
        }
        return found[action.dest]() if action.dest in found else ()

    def _topics(self) -> Iterable[str]:
        """Return what `help` is about: pages and commands, after a command what it has."""
        parser: argparse.ArgumentParser = make_parser()
        for word in self._words:
            parser = subcommands(parser).get(word, argparse.ArgumentParser())
        found = {name for name in subcommands(parser) if self._words or name in COMMANDS}
        return sorted(found if self._words else found | pages().keys() | reasons().keys())

    def _project(self) -> Path:
        """Return the project around, or this user's own."""
        around = nearest_project(Path(self._given["directory"]))
        return around if (around / PROJECT_FILE).exists() else paths.data_home()


def _stacks(project: Path) -> list[str]:
    """Return the stacks that have a configuration."""
    files = (project / str(_declared(project).get("stackConfigDir") or ".")).glob("Pulumi.*.yaml")
    return sorted(path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in files)


def _sources(project: Path, stack: str) -> list[str]:
    """Return the names of a stack's sources."""
    from locallb.cli.stack_sources import listed_sources  # noqa: PLC0415 - few commands take one

    path = project / str(_declared(project).get("stackConfigDir") or ".") / f"Pulumi.{stack}.yaml"
    found = at(_document(path), "config", "local-lb:sources")
    return [one.name for one in listed_sources(objects_of(found))]


def _resources(project: Path, stack: str) -> Sequence[Mapping[str, object]]:
    """Return the resources that a stack's state has; none where it can't be read."""
    declared = _declared(project)
    url = text_of(at(declared, "backend", "url"))
    path = project / url.removeprefix("file://") / ".pulumi/stacks" / str(declared.get("name")) / f"{stack}.json"
    try:
        state = json.loads(safe_files.read(path, _LARGEST))
    except (OSError, ValueError, RecursionError):
        return ()
    return objects_of(at(object_of(state), "checkpoint", "latest", "resources"))


def _balancers(resources: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the load balancers among resources, by the names that end their URNs."""
    urns = [text_of(resource.get("urn")) for resource in resources if resource.get("type") == BALANCER]
    return sorted(urn.partition(f"::{BALANCER}::")[2] for urn in urns)


def _backends(resources: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the addresses of all backends that proxies have."""
    inputs = [object_of(resource.get("inputs")) for resource in resources if resource.get("type") in _WITH_BACKENDS]
    texts = [str(value) for each in inputs for key, value in each.items() if key != "listeners"]
    files = [text_of(text) for each in inputs for name, text in object_of(each.get("files")).items() if "lds" in name]
    listening = {address for text in files for address in _ADDRESS.findall(text)}
    return sorted({address for text in texts for address in _ADDRESS.findall(text)} - listening)


def _contexts() -> list[str]:
    """Return the contexts of the kubeconfig that counts."""
    given = os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")  # noqa: PTH111 - no home is no error
    documents = [_document(Path(path)) for path in given.split(os.pathsep) if path]
    return [text_of(one.get("name")) for document in documents for one in objects_of(document.get("contexts"))]


def _declared(project: Path) -> Mapping[str, object]:
    return _document(project / PROJECT_FILE)


def _document(path: Path) -> Mapping[str, object]:
    """Read a YAML file; one that can't be read says nothing."""
    try:
        return object_of(load_yaml(safe_files.read(path, _LARGEST), yaml.CSafeLoader))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
