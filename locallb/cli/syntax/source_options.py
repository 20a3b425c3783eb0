"""The options that name sources: manifests, running clusters, clusters of kind.

Not here: what a source is and how it is read (`sources`).
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_place(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    """Add the options of `init`."""
    command.add_argument("place", metavar="DIR", type=Path, nargs="?", help="the project (default: here)")
    _add_sources(command, all_of_kind=None)


def add_own_sources(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    """Add what a command serves where there is no project."""
    _add_sources(command.add_argument_group("what to serve, if there is no project"), all_of_kind="?")


def _add_sources(command: argparse._ActionsContainer, *, all_of_kind: str | None) -> None:
    """Add the options that name sources; with `all_of_kind`, `?`, `--kind` alone means each that there is."""
    command.add_argument(
        "--manifests",
        metavar="PATH",
        dest="sources",
        action="append",
        default=[],
        type=lambda path: ("manifests", path),
        help="a directory of manifests, or a file",
    )
    command.add_argument(
        "--kubernetes",
        "--context",
        metavar="CONTEXT",
        dest="sources",
        action="append",
        type=lambda context: ("kubernetes", {"name": context, "context": context}),
        help="a running cluster, by its context in your kubeconfig",
    )
    command.add_argument(
        "--kind",
        metavar="CLUSTER",
        dest="sources",
        action="append",
        nargs=all_of_kind,
        const=("kind", "all") if all_of_kind else None,
        type=lambda name: ("kind", "all" if name == "all" else [name]),
        help="a kind cluster; all: every one",
    )
