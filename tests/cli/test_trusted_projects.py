"""A project in which another user decides is neither run nor read, unless it is named on purpose."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from locallb import safe_files
from locallb.cli.failures import Exit
from tests.support.manifests import node, port, service
from tests.support.own_projects import place, run

__all__ = ["place"]
OTHER = 65534
pytestmark = pytest.mark.root(only="can give files away")
COMMANDS = (
    "up --yes",
    "preview",
    "refresh --yes",
    "destroy --yes",
    "status",
    "open",
    "top --once",
    "fault",
    "drain",
    "logs",
    "watch",
    "gc",
    "doctor",
    "host setup --yes",
    "host status",
    "state check",
    "state restore --yes",
    "state adopt --yes",
    "stack list",
    "stack rm dev --yes",
    "init",
)
"""All that open a project."""


@pytest.fixture
def project(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project in the current directory that notes when its program or its kubeconfig's command is run."""
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setattr(safe_files, "_ACCEPTED", set())
    assert run("init", str(place / "here")).code == Exit.OK
    here = place / "here"
    (here / "manifests").mkdir()
    (here / "manifests" / "all.yaml").write_text(yaml.safe_dump_all([node(), service("web", port(8080, 30001))]))
    program = here / "__main__.py"
    program.write_text(f"open({str(place / 'program-ran')!r}, 'w').close()\n{program.read_text()}")
    return here


def ran(place: Path) -> set[str]:
    return {path.name for path in place.glob("*-ran")}


@pytest.mark.parametrize("terms", COMMANDS)
def test_a_project_of_another_user_is_refused_in_the_current_directory(place: Path, project: Path, terms: str) -> None:
    """The sentence names the owner, and how to name the project on purpose."""
    before = sorted(project.rglob("*"))
    os.chown(project / "Pulumi.yaml", OTHER, OTHER)
    done = run(*terms.split())
    command = terms.partition(" -")[0]
    assert (done.code, done.out) == (Exit.FAILED, "")
    assert done.err == (
        f"error: {project}/Pulumi.yaml belongs to user nobody (65534): nothing of this project was run; if you trust"
        f" that user, name it on purpose: `locallb -C {project} {command}`\n"
    )
    assert ran(place) == set()
    assert sorted(project.rglob("*")) == before


PARTS: dict[str, Callable[[Path], Path]] = {
    "the directory": lambda project: project,
    "the project's file": lambda project: project / "Pulumi.yaml",
    "the program": lambda project: project / "__main__.py",
    "the components": lambda project: project / "components",
    "the directory of stacks": lambda project: project / "stacks",
    "the stack": lambda project: project / "stacks" / "Pulumi.dev.yaml",
    "the backend": lambda project: project / ".state",
    "the state": lambda project: project / ".state/.pulumi/stacks/local-lb/dev.json",
    "the journal": lambda project: project / ".state/.pulumi/journals/local-lb/dev.jsonl",
    "the backups": lambda project: project / ".state/.pulumi/backups",
    "confirmed clusters": lambda project: project / ".state/locallb/dev/clusters",
    "what Envoy refused": lambda project: project / ".state/locallb/dev/refused",
    "the readings": lambda project: project / ".state/locallb/dev",
}


@pytest.mark.parametrize("how", ["given away", "writable"])
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_each_part_of_a_project_counts(place: Path, project: Path, part: Callable[[Path], Path], how: str) -> None:
    """Another user who has one of them, or may write to it, decides what is done."""
    path = part(project)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}") if path.suffix else path.mkdir()
    if how == "given away":
        os.chown(path, OTHER, OTHER)
    else:
        path.chmod(path.stat().st_mode | 0o002)
    done = run("preview")
    assert done.code == Exit.FAILED
    assert f"{path} " in done.err
    assert ("chmod go-w" in done.err) == (how == "writable")
    assert f"locallb -C {project} preview" in done.err
    assert ran(place) == set()


@pytest.mark.parametrize("named", [".", "../here", "absolute"])
def test_a_project_named_on_purpose_is_used(place: Path, project: Path, named: str) -> None:
    """Also by its relative path: what counts is that somebody wrote it."""
    for path in (project, *project.rglob("*")):
        os.chown(path, OTHER, OTHER)
    done = run("-C", str(project) if named == "absolute" else named, "preview")
    assert done.code == Exit.OK, done.err
    assert ran(place) == {"program-ran"}


def test_a_directory_in_a_project_names_only_itself(place: Path, project: Path) -> None:
    """The project around it may be anybody's."""
    (project / "below").mkdir()
    os.chown(project / "Pulumi.yaml", OTHER, OTHER)
    assert run("-C", str(project / "below"), "status").code == Exit.FAILED
    assert run("-C", str(project / "below"), "preview").code == Exit.FAILED
    assert ran(place) == set()


def forget_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `components` imported again: programs of other tests in this process had modules of the same names."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "components"]:
        monkeypatch.delitem(sys.modules, name)


def test_a_module_of_another_user_is_not_imported(place: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever in the project it is; the program's own are."""
    forget_components(monkeypatch)
    program = project / "__main__.py"
    module = project / "components" / "hosts.py"
    program.write_text(f"from components.hosts import here\nhere()\n{program.read_text()}")
    module.write_text(f"def here():\n    open({str(place / 'module-ran')!r}, 'w').close()\n")
    assert run("preview").code == Exit.OK
    assert ran(place) == {"program-ran", "module-ran"}
    for name in ran(place):
        (place / name).unlink()
    forget_components(monkeypatch)
    os.chown(module, OTHER, OTHER)
    done = run("preview")
    assert done.code == Exit.FAILED
    assert f"{module} belongs to user nobody (65534)" in f"{done.err}{done.out}"
    assert ran(place) == set()


def kubeconfig(path: Path, note: Path) -> None:
    """Write a kubeconfig whose command notes that it was run."""
    run_it = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "touch", "args": [str(note)]}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "c", "user": {"exec": run_it}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            }
        )
    )


@pytest.mark.parametrize("owner", [0, OTHER])
def test_the_command_of_another_users_kubeconfig_is_not_run(place: Path, project: Path, owner: int) -> None:
    """Though a trusted stack names the file: whoever can change it would choose the command."""
    file = place / "kubeconfig"
    kubeconfig(file, place / "plugin-ran")
    os.chown(file, owner, owner)
    source = {"kubernetes": {"name": "c", "context": "c", "kubeconfig": str(file)}}
    stack = {"config": {"local-lb:sources": [source]}}
    (project / "stacks" / "Pulumi.dev.yaml").write_text(yaml.safe_dump(stack))
    done = run("status")
    assert ran(place) == ({"plugin-ran"} if owner == 0 else set())
    assert (f"{file} belongs to user nobody (65534)" in f"{done.out}{done.err}") == (owner == OTHER)
