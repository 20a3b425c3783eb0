"""Which modules open files themselves: the rooms that are about files, and each other one with its reason.

Imports say who talks to a kernel or a server (`pyproject.toml`, "outside worlds"); whoever has a path has its file too,
so this is read from the code.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

pytestmark = pytest.mark.checkout

CHECKOUT = Path(__file__).resolve().parents[2]
ROOMS = {
    "locallb.safe_files": "files that may be anything, read within bounds",
    "locallb.storage": "files that we keep, and those of users",
    "locallb.engine.state": "the state: the engine could be published alone, and knows nothing of our storage",
    "locallb.engine.store": "the same",
    "locallb.engine.stack_lock": "the same",
}
KERNEL = "the kernel's files (/proc, /sys) have no size, are never there in part, and say so in the error class of here"
SHIPPED = "files of this very package"
PROGRAM = "programs and archives, which are no texts"
DEVICE = "a device or a descriptor, no file"
MODULES = {
    "locallb.components.in_cluster": SHIPPED,
    "locallb.cli.commands.help": SHIPPED,
    "locallb.cli.commands.watch": DEVICE,
    "locallb.cli.console": "a stream of its own, by that name",
    "locallb.cli.watching.page": SHIPPED,
    "locallb.cli.process": DEVICE,
    "locallb.cli.new_project": SHIPPED,
    "locallb.cli.project": SHIPPED,
    "locallb.cli.commands.preview": "what the user names, which may be a pipe",
    "locallb.gateway.crds": SHIPPED,
    "locallb.package.construct": SHIPPED,
    "locallb.package.generate": SHIPPED,
    "locallb.envoy.binary": "a log in which Envoy goes on writing: it is cut where it is, not replaced",
    "locallb.host.limits": KERNEL,
    "locallb.host.facts": KERNEL,
    "locallb.host.netlink": KERNEL,
    "locallb.host.setup_changes": f"{KERNEL}; and a directory whose mode is set",
    "locallb.host.sockets": KERNEL,
    "locallb.ledger.claim_files": "the directory itself, which is locked",
    "locallb.programs": "a tree of a revision, into a directory that storage lends",
    "locallb.provider": SHIPPED,
    "locallb.provider.generate": SHIPPED,
    "locallb.report.html": SHIPPED,
    "locallb.runtimes.docker.engine_api": PROGRAM,
    "locallb.runtimes.docker.runtime": PROGRAM,
    "locallb.runtimes.docker.route_helper": PROGRAM,
    "locallb.runtimes.processes": f"{KERNEL}; and logs that a process goes on writing",
    "locallb.watch.converge": SHIPPED,
}
"""With the reason why the storage room isn't asked."""
UNGUARDED = {
    "locallb.engine.stack_lock": KERNEL,
    "locallb.safe_files": KERNEL,
    "locallb.storage.files": "a file that it makes, and none that exists (mode x)",
}
"""Modules of these rooms that open something as it is, with the reason."""
GUARDS = os.O_NONBLOCK | os.O_DIRECTORY | os.O_PATH | os.O_EXCL
"""Flags of which one keeps an open from waiting for a pipe's other end."""
PASSED_ON = {
    "locallb.storage.folders": "flags of its callers, which are constants there",
    "locallb.safe_files": "one constant, with or without O_NOFOLLOW; of locks, one of two, which waits for none",
}
"""Modules whose flags aren't one expression."""
_METHODS = {"read_text", "read_bytes", "write_text", "write_bytes"}


def opens(node: ast.AST) -> bool:
    """Return whether this is a call that opens a file: `open(…)`, `path.open("rb")`, `path.read_text()`."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Name):
        return called.id == "open"
    if not isinstance(called, ast.Attribute):
        return False
    if called.attr == "open":
        first = node.args[0] if node.args else None
        is_mode = isinstance(first, ast.Constant) and isinstance(first.value, str)
        by_os = isinstance(called.value, ast.Name) and called.value.id in {"os", "tarfile"}
        return by_os or is_mode or any(keyword.arg in {"mode", "encoding"} for keyword in node.keywords)
    return called.attr in _METHODS


def opening() -> Iterator[str]:
    for root in ("locallb",):
        for path in (CHECKOUT / root).rglob("*.py"):
            if any(map(opens, ast.walk(ast.parse(path.read_text())))):
                yield ".".join(path.relative_to(CHECKOUT).with_suffix("").parts).removesuffix(".__init__")


def is_guarded(call: ast.Call, module: str) -> bool:
    """Return whether `os.open(path, flags)` has a flag that keeps it from waiting, as its module means it."""
    flags = compile(ast.Expression(call.args[1]), module, "eval")
    try:
        return bool(eval(flags, vars(import_module(module))) & GUARDS)  # noqa: S307 - our own code
    except NameError:
        return module in PASSED_ON


def test_every_file_of_the_rooms_about_files_is_opened_guarded() -> None:
    """By the guarded reader, or with flags that wait for nothing: whatever lies in the place of a file."""
    unguarded = set()
    for room in ROOMS:
        place = CHECKOUT / room.replace(".", "/")
        for path in place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]:
            module = ".".join(path.relative_to(CHECKOUT).with_suffix("").parts)
            for node in filter(opens, ast.walk(ast.parse(path.read_text()))):
                assert isinstance(node, ast.Call)
                if not (ast.unparse(node.func) == "os.open" and is_guarded(node, module)):
                    unguarded.add(module)
    assert unguarded == set(UNGUARDED)


def test_only_rooms_about_files_and_named_modules_open_any() -> None:
    """A new one asks the storage room, or says here why it doesn't; one that no longer does has no line any more."""
    others = {name for name in opening() if not f"{name}.".startswith(tuple(f"{room}." for room in ROOMS))}
    assert others == set(MODULES)
