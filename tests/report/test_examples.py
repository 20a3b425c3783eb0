"""The ready-made jobs: they are well-formed, and their commands do what their comments say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from locallb.report.markdown import marker
from tests.support.repository import GIT, commit, git
from tests.support.stages import CHECKOUT, Done

CI = CHECKOUT / "examples/ci"
WEB = "examples/shop/manifests/web.yaml"


@pytest.fixture
def change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a clone of the project's own example with a commit that gives the web shop another port."""
    for name, value in {
        **GIT,
        "XDG_STATE_HOME": str(tmp_path / "s"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }.items():
        monkeypatch.setenv(name, value)
    root = tmp_path / "clone"
    root.mkdir()
    for name in ("Pulumi.yaml", "__main__.py", "stacks", "examples/shop/manifests"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (CHECKOUT / name).is_dir() else shutil.copy
        copy(CHECKOUT / name, root / name)
    shutil.copy(CHECKOUT / "examples/shop/nodes.yaml", root / "examples/shop/manifests/nodes.yaml")
    git(root, "init", "-q", "-b", "main")
    commit(root)
    (root / WEB).write_text((root / WEB).read_text().replace("port: 9000,", "port: 9443,"))
    commit(root)
    return root


def forbid(root: Path) -> None:
    """Let the stack's policies forbid the new port."""
    stack = root / "stacks/Pulumi.dev.yaml"
    stack.write_text(f"{stack.read_text()}  local-lb:policies:\n    ports: [8080, 9000, 5353]\n")


def bash(root: Path, script: str, **more: str) -> Done:
    """Run a job's commands as the runners do."""
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=root,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def loaded(path: Path) -> Any:  # noqa: ANN401 - whatever the file says
    return yaml.safe_load(path.read_text())


def test_the_github_workflow_tells_and_gates(change: Path) -> None:
    """The summary has the report, the page is there, and the gate ends with the preview's own code."""
    workflow = loaded(CI / "github-actions.yml")
    steps = {step.get("name"): step for step in workflow["jobs"]["preview"]["steps"]}
    assert "${{" not in "".join(step.get("run", "") for step in steps.values())
    files = {"GITHUB_STEP_SUMMARY": str(change / "summary"), "GITHUB_OUTPUT": str(change / "output")}
    for code in ("0", "12"):
        done = bash(change, steps["Preview"]["run"], BASE=git(change, "rev-parse", "HEAD~1"), **files)
        assert done.code == 0, done.err
        assert "port 9443/TCP is new, for everybody" in (change / "summary").read_text()
        assert (change / "preview.html").read_text().startswith("<!doctype html>")
        assert (change / "output").read_text().splitlines()[-1] == f"code={code}"
        assert bash(change, steps["Gate"]["run"], CODE=code).code == int(code)
        forbid(change)


@pytest.mark.parametrize("url", ["", "https://api.test/comments/7"])
def test_the_github_workflow_keeps_one_comment_for_each_stack(change: Path, url: str, tmp_path: Path) -> None:
    """It finds its own by the report's hidden first line and replaces it; without one it writes one."""
    steps = {step.get("name"): step for step in loaded(CI / "github-actions.yml")["jobs"]["preview"]["steps"]}
    (change / "preview.md").write_text(f"{marker('dev')}\ntext\n")
    (tmp_path / "gh").write_text(
        f'#!/bin/sh\necho "$MARKER $*" >> {tmp_path}/calls\ncase "$*" in *--jq*) echo "{url}";; esac\n'
    )
    (tmp_path / "gh").chmod(0o755)
    place = "repos/o/r/issues/5/comments"
    surroundings = {"GITHUB_REPOSITORY": "o/r", "NUMBER": "5", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert bash(change, steps["Comment"]["run"], **surroundings).code == 0
    searched, written = (tmp_path / "calls").read_text().splitlines()
    assert searched.startswith(f"<!-- local-lb: stack dev --> api {place} --paginate")
    verb = f"PATCH {url}" if url else f"POST {place}"
    assert written == f"<!-- local-lb: stack dev --> api --method {verb} -F body=@preview.md"


def test_the_github_workflow_labels_by_topics(change: Path, tmp_path: Path) -> None:
    """A label that holds stays, a new one comes, and one that doesn't hold any more goes; others aren't touched."""
    steps = {step.get("name"): step for step in loaded(CI / "github-actions.yml")["jobs"]["preview"]["steps"]}
    topics = [{"topic": topic} for topic in ("removal", "exposure", "removal")]
    (change / "preview.json").write_text(json.dumps({"alerts": topics}))
    (tmp_path / "gh").write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n'
        'case "$*" in *--jq*) echo "load-balancers/address\nload-balancers/removal";; esac\n'
    )
    (tmp_path / "gh").chmod(0o755)
    surroundings = {"GITHUB_REPOSITORY": "o/r", "NUMBER": "5", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = bash(change, steps["Labels"]["run"], **surroundings)
    assert done.code == 0, done.err
    place = "repos/o/r/issues/5/labels"
    assert (tmp_path / "calls").read_text().splitlines()[1:] == [
        f"api --method DELETE {place}/load-balancers%2Faddress",
        f"api --method POST {place} -f labels[]=load-balancers/exposure",
        f"api --method POST {place} -f labels[]=load-balancers/removal",
    ]


def test_the_gitlab_job_tells_and_gates(change: Path) -> None:
    """The log has the report, both files are there, and the job ends with the preview's own code."""
    job = loaded(CI / "gitlab-ci.yml")["load-balancers"]
    for code in (0, 12):
        base = git(change, "rev-parse", "HEAD~1")
        done = bash(change, "\n".join(job["script"]), CI_MERGE_REQUEST_DIFF_BASE_SHA=base)
        assert done.code == code
        assert "port 9443/TCP is new, for everybody" in done.out
        assert all((change / path).stat().st_size for path in job["artifacts"]["paths"])
        forbid(change)


def test_the_pre_commit_hook_tells_and_gates(change: Path) -> None:
    """Before the commit: the work tree against HEAD."""
    (hook,) = loaded(CHECKOUT / ".pre-commit-hooks.yaml")
    assert {"id", "name", "entry", "language"} <= set(hook)
    git(change, "reset", "-q", "--soft", "HEAD~1")
    done = bash(change, hook["entry"])
    assert done.code == 0
    assert "port 9000/TCP → 9443/TCP" in done.out
    forbid(change)
    done = bash(change, hook["entry"])
    assert done.code == 12
    assert "port 9443/TCP is not among those that local-lb:policies.ports allows" in done.err
