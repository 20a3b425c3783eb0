"""A project under Git, to compare its revisions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.support.manifests import node, port, service
from tests.support.repository import GIT, commit, git
from tests.support.stages import Stage, stage


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Return a project under Git with two Services committed; it has no state, no backend and no home."""
    with stage() as made:
        (made.root / "stacks/Pulumi.dev.yaml").unlink()
        made.configure()
        shutil.rmtree(made.root / ".state")
        made.write("all.yaml", node(), service("web", port(8080, 30080)), service("api", port(8080, 30081)))
        for name, value in GIT.items():
            monkeypatch.setenv(name, value)
        git(made.root, "init", "-q", "-b", "main")
        commit(made.root)
        yield made
        (made.root / ".state").mkdir(exist_ok=True)
