"""What is done with a project under Git, and the report of what differs from one of its revisions."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.reports import SCHEMA
from tests.support.schemas import mistakes
from tests.support.stages import Stage

GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
}
"""The environment of a Git that knows nothing of whoever tests."""
FORMATS = ("tree", "markdown", "json", "html")


def git(root: Path, *terms: str) -> str:
    return subprocess.run(["git", *terms], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "x")


def report(made: Stage, other: str = "HEAD", code: int = 0) -> dict[str, Any]:
    """Return the report as JSON, checked by its schema."""
    done = made.run("preview", "--against", other, "--format", "json")
    assert done.code == code, done.err
    assert list(mistakes(done.json, SCHEMA, SCHEMA)) == []
    document: dict[str, Any] = done.json
    return document
