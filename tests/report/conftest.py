"""A project under Git, to compare its revisions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.support import Stage, node, port, service, stage
from tests.report.repository import commit, git


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Return a project under Git with two Services committed; it has no state, no backend and no home."""
    with stage() as made:
        (made.root / "stacks/Pulumi.dev.yaml").unlink()
        made.configure()
        shutil.rmtree(made.root / ".state")
        made.write("all.yaml", node(), service("web", port(8080, 30080)), service("api", port(8080, 30081)))
        for name, value in {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_AUTHOR_NAME": "a",
            "GIT_AUTHOR_EMAIL": "a@example.com",
            "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@example.com",
        }.items():
            monkeypatch.setenv(name, value)
        git(made, "init", "-q", "-b", "main")
        commit(made)
        yield made
        (made.root / ".state").mkdir(exist_ok=True)
