"""`preview --against`: a directory or a revision, without state, host, cluster or a trace."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.manifests import node, port, service
from tests.support.repository import FORMATS, commit, git, report
from tests.support.stages import Done, Stage

DATA = Path(__file__).resolve().parents[1] / "sources/data"


def changes(found: dict[str, Any]) -> dict[str, str]:
    return {service["name"]: service["change"] for service in found["services"]}


def test_a_revision_equal_to_the_manifests_has_no_changes(repo: Stage) -> None:
    """Everybody is there and unchanged, and --expect-no-changes is content."""
    assert changes(report(repo)) == {"api": "unchanged", "web": "unchanged"}
    assert repo.run("preview", "--against", "main", "--expect-no-changes").code == 0


def test_edits_show_against_a_revision_and_addresses_stay(repo: Stage) -> None:
    """Added, changed and removed; who stays keeps its address, also where a neighbour went."""
    before = {service["name"]: service["after"]["addresses"] for service in report(repo)["services"]}
    repo.write("all.yaml", node(), service("web", port(8080, 30080), port(9000, 30090)), service("new", port(1, 30082)))
    document = report(repo)
    assert changes(document) == {"api": "removed", "new": "added", "web": "changed"}
    web = next(service for service in document["services"] if service["name"] == "web")
    assert web["before"]["addresses"] == web["after"]["addresses"] == before["web"]
    assert [alert["topic"] for alert in document["alerts"]] == ["removal", "exposure", "exposure"]
    assert repo.run("preview", "--against", "main", "--expect-no-changes").code == 7


@pytest.mark.parametrize("form", FORMATS)
def test_the_bytes_are_the_same_every_time_and_nothing_is_left(
    repo: Stage, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file appears in the project, in the home or among temporary files."""
    repo.write("more.yaml", service("more", port(8080, 30083)))
    spare = repo.root / "tmp"
    spare.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spare))
    before = repo.files()
    first = repo.run("preview", "--against", "HEAD", "--format", form)
    retry = repo.run("preview", "--against", "HEAD", "--format", form)
    assert (first.code, first.out) == (0, retry.out)
    assert first.err == ""
    assert repo.files() == before
    assert list(spare.iterdir()) == []
    assert not (repo.root / "s/locallb").exists()


def test_a_copy_elsewhere_gives_the_same_bytes(repo: Stage, tmp_path: Path) -> None:
    """The place of the checkout is no part of the report."""
    repo.write("more.yaml", service("more", port(8080, 30083)))
    shutil.copytree(repo.root, tmp_path / "copy", symlinks=True)
    for form in FORMATS:
        mine = repo.run("preview", "--against", "HEAD", "--format", form).out
        assert Stage(tmp_path / "copy").run("preview", "--against", "HEAD", "--format", form).out == mine


def test_against_compares_a_directory_with_the_only_source(repo: Stage, tmp_path: Path) -> None:
    """Or, with a Pulumi.yaml, with the whole project and its own configuration."""
    shutil.copytree(repo.manifests, tmp_path / "old")
    repo.write("all.yaml", node(), service("web", port(8080, 30080)))
    document = report(repo, str(tmp_path / "old"))
    assert changes(document) == {"api": "removed", "web": "unchanged"}
    assert document["settings"] == []
    shutil.copytree(repo.root, tmp_path / "project")
    repo.configure(pools=[{"name": "p", "addresses": ["127.78.0.0/28"]}])
    document = report(repo, str(tmp_path / "project"))
    assert document["settings"] == ["pools"]
    assert [alert["topic"] for alert in document["alerts"]] == ["address"]


def test_a_stack_of_several_sources_asks_for_the_whole_project(repo: Stage, tmp_path: Path) -> None:
    """One directory can't stand for two; everything then counts as new, and it says so."""
    repo.configure(sources=[{"manifests": "manifests", "name": "c"}, {"manifests": "manifests", "name": "d"}])
    document = report(repo, str(tmp_path))
    assert "has no Pulumi.yaml, and the stack has 2 sources" in document["notices"][0]


def test_the_configuration_of_the_old_revision_counts_for_the_old_side(repo: Stage) -> None:
    """A changed pool moves addresses, which a policy can forbid."""
    repo.configure(pools=[{"name": "p", "addresses": ["127.78.0.0/28"]}], policies={"addressChanges": "forbidden"})
    document = report(repo, code=10)
    assert document["settings"] == ["pools", "policies"]
    assert len(document["violations"]) == 2


def test_a_project_below_the_top_of_its_repository_and_a_source_beside_it(repo: Stage, tmp_path: Path) -> None:
    """Paths are those of the project, also where they lead out of it, as long as they stay in the repository."""
    top = Stage(tmp_path / "top")
    shutil.copytree(repo.root, top.root / "deep/er", ignore=shutil.ignore_patterns(".git", "manifests"))
    shutil.copytree(repo.manifests, top.root / "charts")
    git(top.root, "init", "-q")
    below = Stage(top.root / "deep/er")
    below.configure(sources=[{"manifests": "../../charts", "name": "c"}])
    commit(top.root)
    assert changes(report(below)) == {"api": "unchanged", "web": "unchanged"}
    below.configure(sources=[{"manifests": "../../../outside", "name": "c"}])
    (tmp_path / "outside").mkdir()
    commit(top.root)
    done = below.run("preview", "--against", "HEAD")
    assert done.code == 1
    assert "lies outside the repository" in done.err


def test_a_revision_before_the_stack_existed_makes_everything_new(repo: Stage) -> None:
    """The report says why."""
    first = git(repo.root, "rev-parse", "HEAD")
    repo.configure("later")
    document = repo.run("--stack", "later", "preview", "--against", first, "--format", "json").json
    assert set(changes(document).values()) == {"added"}
    assert "there is no stack 'later'" in document["notices"][0]
    assert "tmp" not in document["notices"][0]


def test_links_between_manifests_are_read_as_the_files_they_lead_to(repo: Stage) -> None:
    """As in the work tree; links that lead elsewhere are no files of the revision."""
    (repo.manifests / "all.yaml").rename(repo.manifests / "real.yaml")
    (repo.manifests / "real.yaml").rename(repo.root / "manifests/b.yaml")
    (repo.manifests / "away.yaml").symlink_to("/etc/hostname")
    commit(repo.root)
    (repo.manifests / "away.yaml").unlink()
    (repo.manifests / "a.yaml").symlink_to("b.yaml")
    commit(repo.root)
    assert set(changes(report(repo, "HEAD")).values()) == {"unchanged"}
    (repo.manifests / "a.yaml").unlink()
    assert set(changes(report(repo, "HEAD~1")).values()) == {"unchanged"}


@pytest.mark.parametrize("name", ["nope", "--help", "HEAD~9", "-x", " ", ""])
def test_against_refuses_a_name_that_is_neither_directory_nor_revision(repo: Stage, name: str) -> None:
    """In one sentence; nothing that looks like an option reaches Git."""
    done = repo.run("preview", f"--against={name}")
    assert done.code == 1
    assert "is neither a directory nor a revision" in done.err


def test_outside_of_a_repository_it_says_so(repo: Stage) -> None:
    """What Git says is told."""
    shutil.rmtree(repo.root / ".git")
    done = repo.run("preview", "--against", "main")
    assert done.code == 1
    assert "not a git repository" in done.err


def test_a_file_that_cannot_be_read_fails_the_preview_and_is_named(repo: Stage) -> None:
    """The rest is told all the same."""
    (repo.manifests / "broken.yaml").write_text("a: [")
    done = repo.run("preview", "--against", "HEAD", "--format", "markdown")
    assert done.code == 1
    assert "broken.yaml line 2" in done.err
    assert "broken.yaml line 2" in done.out
    assert "c/n/web" in done.out


def test_against_works_in_a_git_hook_of_another_repository(repo: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git's environment variables for its hooks don't apply to the project."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.setenv(name, "elsewhere")
    assert not report(repo)["changes"]


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        (["--against", "HEAD", "--json"], "--format json"),
        (["--from-pulumi", "x", "--json"], "--format json"),
        (["--format", "html", "--json"], "--format json"),
        (["--format", "html", "--target", "c/n/web"], "leave out --target"),
        (["--against", "HEAD", "--from-pulumi", "x"], "not allowed with"),
        (["--format", "pdf"], "'pdf' isn't one of tree, markdown, json, html"),
    ],
)
def test_options_that_contradict_each_other_are_refused(repo: Stage, terms: list[str], why: str) -> None:
    """With exit code 2."""
    done: Done = repo.run("preview", *terms)
    assert done.code == 2
    assert why in done.err


@pytest.mark.parametrize("tool", ["helm", "kustomize", "kubectl"])
def test_against_compares_the_output_of_helm_kustomize_and_kubectl(repo: Stage, tool: str) -> None:
    """Charts of third-party applications: everything is new at first, and then nothing changes."""
    shutil.rmtree(repo.manifests)
    shutil.copytree(DATA / tool, repo.manifests)
    document = report(repo)
    assert {service["name"] for service in document["services"]} > {"api", "web"}
    assert not [alert for alert in document["alerts"] if alert["topic"] == "unreadable"]
    if tool != "kubectl":
        assert "the manifests have no Nodes" in document["notices"][0]
        assert "NoBackends" not in json.dumps(document)
    commit(repo.root)
    assert not report(repo)["changes"]


def test_a_new_port_of_a_chart_shows_although_nothing_runs_yet(repo: Stage) -> None:
    """`helm template` knows neither Nodes nor nodePorts: a port is exposed as soon as it is declared."""
    shutil.rmtree(repo.manifests)
    shutil.copytree(DATA / "helm", repo.manifests)
    commit(repo.root)
    chart = repo.manifests / "ingress-nginx.yaml"
    chart.write_text(chart.read_text().replace("port: 443", "port: 8443"))
    messages = [alert["message"] for alert in report(repo)["alerts"] if alert["topic"] == "exposure"]
    assert messages == ["c/ingress/edge-ingress-nginx-controller: port 8443/TCP is new, for everybody"]
