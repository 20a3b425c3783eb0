"""What is done with a project under Git, and the report of what differs from one of its revisions."""

from __future__ import annotations

import subprocess
from typing import Any

from tests.e2e.support import Stage
from tests.report.schema import mistakes
from tests.report.test_hostile import SCHEMA

FORMATS = ("tree", "markdown", "json", "html")


def git(made: Stage, *words: str) -> str:
    """Run Git in the project."""
    done = subprocess.run(["git", "-C", str(made.root), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(made: Stage) -> None:
    """Commit everything."""
    git(made, "add", "-A")
    git(made, "commit", "-q", "-m", "x")


def report(made: Stage, other: str = "HEAD", code: int = 0) -> dict[str, Any]:
    """Return the report as JSON, checked by its schema."""
    done = made.run("preview", "--against", other, "--format", "json")
    assert done.code == code, done.err
    assert list(mistakes(done.json, SCHEMA, SCHEMA)) == []
    document: dict[str, Any] = done.json
    return document
