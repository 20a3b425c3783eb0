"""The project: its directory, the texts of a new one's files, and the refusal of one that other users control.

The directory is the named one, or the nearest above it, as Git finds its repository. A project may be used if only
trusted users control its code and settings, or if the caller named it by `-C`. This decides for everything in a
project: its file, program, components, stacks and state. Modules that the program imports, and kubeconfigs with a
command, are checked where they are used. The standard program is the first content of `__main__.py` in every project.

Not here: the rules of trust (`safe_files`), the choice between this project and the user's own, and writing the files
(`new_project`).
"""

from __future__ import annotations

import ast
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from locallb import __version__, safe_files
from locallb.cli.arguments import Arguments
from locallb.cli.failures import Refused
from locallb.engine.state.errors import EngineError
from locallb.engine.state.project import load_project
from locallb.model.errors import reported
from locallb.model.identities import Home
from locallb.safe_files import Distrust
from locallb.storage.paths import CONSENTS, REFUSALS, shipped, stack_directory

PROJECT_FILE = "Pulumi.yaml"
PROGRAM_FILE = "__main__.py"


def nearest_project(directory: Path) -> Path:
    """Return the project that `directory` lies in; `directory` where there is none.

    A project is a program that is run: above `directory` only one that no other user can change counts. In `directory`
    itself any counts, to be refused (`require_trusted`) rather than passed over.

    Raises:
        Refused: if the current directory is gone.

    """
    try:
        start = directory.resolve()
    except FileNotFoundError:
        raise Refused(
            "the current directory doesn't exist any more; change to one that does, or name the project with -C DIR"
        ) from None
    if is_project(start):
        return start
    return next((above for above in start.parents if is_trusted(above)), start)


def is_project(directory: Path) -> bool:
    """Return whether a directory has a project's file, whatever that is."""
    return os.path.lexists(directory / PROJECT_FILE)


def is_trusted(directory: Path) -> bool:
    """Return whether there is a project, and no other user can change which program that is."""
    with suppress(OSError):
        return is_project(directory) and fault(directory) is None
    return False


def fault(directory: Path) -> Distrust | None:
    """Return why what a project runs isn't trusted; None where it is. Raises OSError where that can't be determined."""
    parts = (directory / PROJECT_FILE, directory / PROGRAM_FILE)
    return next((found for part in parts if (found := safe_files.distrust(part, directory))), None)


def require_trusted(directory: Path, args: Arguments) -> None:
    """Check everything of a project that decides what is done, unless `-C` names it. Raises Refused."""
    if args.named and args.directory.resolve() == directory:
        safe_files.accept(directory)
        return
    try:
        fault = _first_fault(directory, args.stack)
    except OSError as error:
        raise Refused(f"to whom {directory} belongs can't be determined: {reported(error)}") from None
    if fault:
        why = "nothing of this project was run"
        remedy = f"{fault.remedy}, or if you trust them" if fault.remedy else "if you trust that user"
        terms = shlex.join(filter(None, (args.command, args.action, args.removed)))
        raise Refused(f"{fault}: {why}; {remedy}, name it on purpose: `locallb -C {directory} {terms}`")


def _first_fault(directory: Path, stack: str) -> Distrust | None:
    """Return what can't be trusted of a project: rather an owner than a mode, as the owner is the one to know."""
    found = (safe_files.distrust(part, base) for base, part in _parts(directory, stack))
    return min(filter(None, found), key=lambda fault: bool(fault.mode), default=None)


def _parts(directory: Path, stack: str) -> Iterator[tuple[Path, Path]]:
    """Yield files and directories of a project, each with the directory in which only trusted users may write."""
    yield directory, directory / PROJECT_FILE
    try:
        project = load_project(directory)
    except EngineError:  # the command that needs it reports that, and runs nothing
        return
    yield project.main, project.main / PROGRAM_FILE
    yield project.main, project.main / "components"
    yield project.stack_config_dir, project.stack_file(stack)
    state = project.state_file(stack)
    yield project.backend, state
    yield project.backend, project.backend / ".pulumi" / "journals" / project.name / f"{stack}.jsonl"
    yield project.backend, project.backend / ".pulumi" / "locks" / "organization" / project.name / stack
    yield project.backend, project.backend / ".pulumi" / "backups" / project.name / stack
    retained = stack_directory(Home(project.name, stack, str(directory)))
    yield directory, retained
    yield from ((directory, retained / name) for name in (CONSENTS, REFUSALS))


_LARGEST = 64 << 10
"""Bytes of a program that may be the standard one."""
PROGRAM = '''\
"""The program, for `locallb up` and for `pulumi up`: serve the stack's Services. Resources of your own may follow."""

from locallb.program import serve

reading, plan = serve()
'''


def is_standard(path: Path) -> bool:
    """Return whether a program does what the standard one does and nothing else; False where it can't be read."""
    try:
        return _statements(safe_files.read(path, _LARGEST)) == _statements(PROGRAM.encode())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return False


def _statements(program: bytes) -> list[str]:
    """Return what a program does: layout, comments and texts that do nothing don't count."""
    return [ast.dump(statement) for statement in ast.parse(program).body if not _is_text(statement)]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


Sources = Sequence[Mapping[str, object]]
MANIFESTS = "manifests"
"""The directory of a project's manifests, unless its sources are named."""
WHEEL = f"wheels/local_lb-{__version__}-py3-none-any.whl"
"""What a project's jobs in CI install, which no index has."""
_PROJECT = """\
name: local-lb
description: Addresses for Kubernetes Services of type LoadBalancer on local clusters
runtime:
  name: python
  options:
    toolchain: pip{environment}
main: .
stackConfigDir: stacks
backend:
  url: file://./.state
options:
  refresh: always
plugins:
  providers:
    - name: locallb
      path: ./provider
"""
_PLUGIN = """\
# Read by the Pulumi CLI, which runs this directory as the plugin `locallb` (Pulumi.yaml: plugins.providers).
runtime:
  name: python
  options:
    toolchain: pip{environment}
"""
_PLUGIN_PROGRAM = '''\
"""The provider as a plugin of the Pulumi CLI, which runs this directory; `locallb` itself needs none."""

import sys

from locallb.package import main

main(sys.argv[1:])
'''
STACK_SCHEMA = "stack.schema.json"
"""Next to the stacks' files: editors complete and check these by it."""
_STACK = f"""\
# yaml-language-server: $schema={STACK_SCHEMA}
# A stack of local-lb; `locallb help configuration` has all keys. The Pulumi CLI adds an `encryptionsalt`; locallb
# needs none.
config:
  local-lb:sources:
{{sources}}
  # local-lb:pools:                     # addresses to hand out; without it 127.77.0.0/27, which a list replaces:
  #   - name: default                   # what has an address of it keeps that while it is listed
  #     addresses: [127.77.0.0/27]
  #   - name: more
  #     addresses: [127.78.0.0/24]
  # local-lb:pins:                      # addresses of Services that nobody may annotate
  #   shop/web: [127.77.0.9]
  # local-lb:namespaces: [shop]         # only these
  # local-lb:proxies: shared            # one Envoy for all; without it one for each Service
"""
_COMPONENT = '''\
"""A component of your own: `from components.hosts import Hosts` in `__main__.py`, at its end `Hosts("hosts", plan)`."""

import pulumi


class Hosts(pulumi.ComponentResource):
    """A line for /etc/hosts for each Service and address, as an output of the stack."""

    def __init__(self, name, plan):
        super().__init__("my:index:Hosts", name)
        lines = [
            f"{address} {placement.owner.service.name}.{placement.owner.service.namespace}"
            for placement in plan.placements
            for address in placement.addresses
        ]
        self.register_outputs({"lines": lines})
        pulumi.export("hosts", lines)
'''
_TEST = '''\
"""Each stack's configuration can be used: `python -m pytest`, or `python tests/test_stacks.py` without pytest."""

from pathlib import Path

from locallb.engine.state.project import load_config, load_project
from locallb.sources.configuration import stack_settings


def test_every_stack_can_be_used() -> None:
    """A mistake is told in a sentence."""
    project = load_project(Path(__file__).resolve().parents[1])
    assert project.stacks()
    for stack in project.stacks():
        assert stack_settings(load_config(project, stack)).sources


if __name__ == "__main__":
    test_every_stack_can_be_used()
'''
_IGNORED = """\
/.venv
/.state/*
!/.state/.gitkeep
/provider/schema-locallb.json
__pycache__/
"""
_REQUIREMENTS = f"""\
# No index has local-lb: commit its wheel here, of a release or built by `make wheel` in a checkout.
./{WHEEL}
"""
_INSTALL = "python -m venv .venv && .venv/bin/pip install -r requirements.txt"


def program_files(environment: str, plugin_environment: str) -> Mapping[str, str]:
    """Return what `locallb` and the Pulumi CLI run; an environment is a directory, empty for the system's Python."""
    return {
        "Pulumi.yaml": _PROJECT.format(environment=_option(environment)),
        "__main__.py": PROGRAM,
        "provider/PulumiPlugin.yaml": _PLUGIN.format(environment=_option(plugin_environment)),
        "provider/__main__.py": _PLUGIN_PROGRAM,
    }


def project_files(jobs: Mapping[str, str]) -> Mapping[str, str]:
    """Return a project to be kept in Git; `jobs` are those of CI, by their paths, as a checkout runs them."""
    return {
        **program_files(".venv", "../.venv"),
        ".gitignore": _IGNORED,
        ".state/.gitkeep": "",
        "components/hosts.py": _COMPONENT,
        "requirements.txt": _REQUIREMENTS,
        "tests/test_stacks.py": _TEST,
        **{path: text.replace("make setup", _INSTALL) for path, text in jobs.items()},
    }


def stack_schema() -> str:
    """Return the schema of stacks' files, as this version has it."""
    return shipped(f"docs/{STACK_SCHEMA}").read_text(encoding="utf-8")


def stack_text(sources: Sources, runtime: str = "", *, localhost: bool = False) -> str:
    """Return the configuration of a stack; without `runtime` that is the usual one; `localhost`: with names there."""
    lines = [f"    - {line}" for line in _entries(sources)]
    chosen = f"\n  local-lb:runtime: {runtime}" if runtime else ""
    if localhost:
        chosen += "\n  local-lb:localhost: true            # names such as http://web.shop.localhost:8080"
    return _STACK.format(sources="\n".join(lines) + chosen)


def _entries(sources: Sources) -> list[str]:
    return [f"{key}: {json.dumps(value)}" for source in sources for key, value in source.items()]


def _option(environment: str) -> str:
    return f"\n    virtualenv: {json.dumps(environment)}" if environment else ""
