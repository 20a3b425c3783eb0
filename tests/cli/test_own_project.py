"""Without a project: one of this user's own is begun, served and told; other projects stay as they are."""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from locallb.cli import new_project as first_sources
from locallb.cli.failures import Exit
from locallb.cli.new_project import RUNTIME_VARIABLE
from locallb.cli.stack_sources import with_sources
from locallb.sources.kind import names_of_clusters
from tests.support.backends import Backend
from tests.support.containers import docker
from tests.support.docker_image import image
from tests.support.manifests import node, port, service
from tests.support.own_projects import place, run
from tests.support.stages import free_prefix

__all__ = ["image", "place"]


def stack_of(place: Path, stack: str = "dev") -> Path:
    """Return the file of a stack of the user's own project."""
    return place / f"data/local-lb/stacks/Pulumi.{stack}.yaml"


def sources(path: Path) -> object:
    return yaml.safe_load(path.read_text())["config"]["local-lb:sources"]


def write_manifests(place: Path, name: str = "shop", behind: int = 30001) -> Path:
    """Write a directory with one Service, and the port behind it."""
    directory = place / name
    directory.mkdir()
    (directory / "all.yaml").write_text(
        yaml.safe_dump_all([node(), service("web", {**port(8080, behind), "name": "http"})])
    )
    return directory


def write_contexts(place: Path, *names: str, server: str = "https://127.0.0.1:9", proxy: str = "") -> None:
    """Write the user's kubeconfig with these contexts of one cluster; the first is current."""
    (place / ".kube").mkdir()
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in names]
    clusters = [{"name": "c", "cluster": {"server": server, **({"proxy-url": proxy} if proxy else {})}}]
    document = {"current-context": names[0], "clusters": clusters, "users": [{"name": "u", "user": {}}]}
    (place / ".kube/config").write_text(json.dumps({**document, "contexts": contexts}))


def test_the_first_run_tells_in_five_lines_what_it_begins(place: Path) -> None:
    """What, where, and how to undo it; the second run tells it no more, and JSON stays JSON."""
    write_manifests(place)
    first = run("preview", "--manifests", "../shop")
    assert first.code == Exit.OK, first.err
    reported = first.out.splitlines()[:5]
    for line, terms in zip(reported, ("~/data/local-lb", "/shop", "Envoy", "~/s/ledger", "destroy"), strict=True):
        assert terms in line
    assert reported[4].endswith("but keep ~/data/local-lb/ca, the authority of other projects and browsers")
    assert reported[0] not in run("preview").out
    assert json.loads(run("preview", "--json").out)["ok"]


def test_own_project_is_private_and_uses_the_running_installation(place: Path) -> None:
    """Every directory has mode 0700, every file 0600; the Pulumi CLI finds this environment and the plugin."""
    write_manifests(place)
    run("preview", "--manifests", "../shop")
    root = place / "data/local-lb"
    modes = {path.stat().st_mode & 0o777 for path in (root, *root.rglob("*")) if path.is_dir()}
    assert modes == {0o700}
    assert {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()} == {0o600}
    project = yaml.safe_load((root / "Pulumi.yaml").read_text())
    assert project["runtime"]["options"]["virtualenv"] == sys.prefix
    assert (root / project["plugins"]["providers"][0]["path"] / "PulumiPlugin.yaml").is_file()


def test_the_provider_is_a_plugin_that_starts(place: Path) -> None:
    """It tells its port on standard output, as the Pulumi CLI wants."""
    run("preview", "--manifests", str(write_manifests(place)))
    terms = [sys.executable, str(place / "data/local-lb/provider"), "127.0.0.1:1"]
    with subprocess.Popen(terms, stdout=subprocess.PIPE, text=True) as plugin:
        assert plugin.stdout
        reported = plugin.stdout.readline()
        plugin.terminate()
    assert int(reported) > 0


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (["--kind"], [{"kind": "all"}]),
        (["--kind", "shop"], [{"kind": ["shop"]}]),
        (["--context", "kind-shop"], [{"kubernetes": {"name": "kind-shop", "context": "kind-shop"}}]),
        (["--context", "admin@Talos:1"], [{"kubernetes": {"name": "admin-talos-1", "context": "admin@Talos:1"}}]),
        (["--manifests", "a", "--kind"], [{"manifests": "{here}/a"}, {"kind": "all"}]),
    ],
)
def test_options_say_what_the_stack_serves(place: Path, terms: list[str], expected: list[object]) -> None:
    """As its configuration has it, whether the cluster answers now or not."""
    write_contexts(place, "kind-shop", "admin@Talos:1")
    (place / "here/a").mkdir()
    run("preview", *terms)
    reported = json.loads(json.dumps(sources(stack_of(place))).replace(str(place / "here"), "{here}"))
    assert reported == expected


@pytest.mark.parametrize(
    ("terms", "reported"),
    [
        (["--kind"], "every cluster of kind on this host's Docker"),
        (["--kind", "shop"], "the cluster shop of kind on this host's Docker"),
        (["--context", "shop"], "the cluster of the context shop"),
    ],
)
def test_first_watch_names_what_it_serves(place: Path, terms: list[str], reported: str) -> None:
    """In the second of the five lines."""
    write_contexts(place, "shop")
    assert run("preview", *terms).out.splitlines()[1] == f"  serves  {reported}, as stacks/Pulumi.dev.yaml there says"


def test_every_cluster_of_kind_is_served_where_there_is_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the current context of the kubeconfig, which is served where there is none."""
    write_contexts(place, "shop")
    run("preview")
    assert sources(stack_of(place)) == [
        {"kubernetes": {"name": "shop", "context": "shop", "kubeconfig": str(place / ".kube/config")}}
    ]
    monkeypatch.setattr(first_sources, "_why_no_kind", lambda: "")
    run("preview", "--stack", "other")
    assert sources(stack_of(place, "other")) == [{"kind": "all"}]


def test_the_environment_says_in_what_a_new_stack_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an image does; a word that is no runtime begins nothing, and what has begun stays as it is."""
    shop = str(write_manifests(place))
    monkeypatch.setenv(RUNTIME_VARIABLE, "dokcer")
    done = run("preview", "--manifests", shop)
    assert (done.code, (place / "data").exists()) == (Exit.FAILED, False)
    assert "dokcer" in done.err
    monkeypatch.setenv(RUNTIME_VARIABLE, "docker")
    run("preview", "--manifests", shop)
    assert yaml.safe_load(stack_of(place).read_text())["config"]["local-lb:runtime"] == "docker"
    monkeypatch.setenv(RUNTIME_VARIABLE, "process")
    run("preview")
    assert "local-lb:runtime: docker" in stack_of(place).read_text()


def test_its_stacks_are_completed(place: Path) -> None:
    """Where there is no project."""
    assert run("completion", "answer", "--", "--stack", "").out == ""
    run("preview", "--stack", "mine", "--manifests", str(write_manifests(place)))
    assert run("completion", "answer", "--", "--stack", "").out == "mine\n"


@pytest.mark.docker
def test_docker_tells_whether_there_is_a_cluster_of_kind(
    place: Path, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the label of a control plane's container, which needn't run."""
    del place
    monkeypatch.delenv("DOCKER_HOST")
    labels = ("--label", "io.x-k8s.kind.role=control-plane", "--label", "io.x-k8s.kind.cluster=llb-own")
    made = docker("create", *labels, image)
    try:
        assert "llb-own" in names_of_clusters()
        assert first_sources.default_sources() == [{"kind": "all"}]
    finally:
        docker("rm", made)


@pytest.mark.envoy
def test_own_project_serves_and_destroy_removes_everything(place: Path, backend: Callable[..., Backend]) -> None:
    """`up`, `status`, `destroy`, with names below `localhost`; a pool that the user wrote stays in the stack's file."""
    write_manifests(place, behind=backend("web").port)
    run("preview", "--manifests", "../shop")
    with stack_of(place).open("a") as file:
        file.write(f"  local-lb:pools: [{{name: own, addresses: [{free_prefix()}.0/27]}}]\n")
    text = stack_of(place).read_text()
    done = run("up", "--yes")
    assert done.code == Exit.OK, done.err
    rows = {row["kind"]: row for row in json.loads(run("status", "--json").out)}
    assert {kind: row["state"] for kind, row in rows.items()} == {"services": "serving", "localhost": "serving"}
    assert "http://web.n.localhost" in rows["services"]["localhost"][0]
    assert run("up", "--yes").out.splitlines()[-1] == f"Try: {rows['services']['localhost'][0]}"
    assert run("up", "--yes", "--manifests", "../shop", "--expect-no-changes").code == Exit.OK
    assert stack_of(place).read_text() == text
    assert run("destroy", "--yes").code == Exit.OK
    assert not [*(place / "s").rglob("bootstrap.json"), *(place / "s/ledger").iterdir()]


def test_the_doctor_has_no_findings_for_a_new_user(place: Path) -> None:
    """That there is no project yet is a note with the next step; the Docker that is looked for is DOCKER_HOST's."""
    done = run("doctor", "--json")
    reported = [finding for finding in json.loads(done.out)["findings"] if finding["topic"] in {"stack", "Docker"}]
    assert [(each["level"], each["text"]) for each in reported] == [
        ("ok", "Docker isn't running; the process runtime doesn't need it"),
        ("note", f"there is no project here and none in {place}/data/local-lb"),
    ]
    assert reported[1]["remedy"] == "`locallb watch` begins one"
    assert not (place / "data").exists()


def test_a_home_that_cannot_be_written_is_reported_with_the_variables_that_lead_elsewhere(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both, where both lie below it."""
    del place
    monkeypatch.setenv("HOME", "/proc")  # where nobody can make a directory, root neither
    monkeypatch.delenv("XDG_DATA_HOME")
    done = run("up", "--kind")
    assert (done.code, done.out) == (Exit.FAILED, "")
    assert "give a writable XDG_DATA_HOME\n" in done.err
    monkeypatch.delenv("XDG_STATE_HOME")
    assert "give a writable XDG_DATA_HOME and XDG_STATE_HOME\n" in run("up", "--kind").err


@pytest.mark.parametrize("terms", ["", "--stack shop", "--json"])
def test_a_command_line_without_a_command_shows_the_first_steps(place: Path, terms: str) -> None:
    """On standard error, as it isn't understood; nothing is begun."""
    done = run(*terms.split())
    assert (done.code, bool(done.out)) == (Exit.USAGE, terms == "--json")
    for step in ("locallb watch", "locallb status", "locallb destroy", "`locallb --help` lists all commands"):
        assert step in done.err
    assert done.err.endswith("locallb: error: COMMAND is missing\n")
    assert not (place / "data").exists()


@pytest.mark.parametrize(
    ("terms", "reported"),
    [
        ("status", "there is no project here and none in"),
        ("destroy --yes", "`locallb watch` or `locallb up` makes that one"),
        ("top", "`locallb watch` or `locallb up` makes that one"),
        ("logs", "`locallb watch` or `locallb up` makes that one"),
        ("gc", "`locallb watch` or `locallb up` makes that one"),
        ("stack list", "`locallb watch` or `locallb up` makes that one"),
        ("host setup", "`locallb watch` or `locallb up` makes that one"),
        ("up --yes", "error: found nothing to serve\nerror: kind: "),
        (
            "up --context shop",
            "No such file or directory; repair that file, or set KUBECONFIG to the one that is meant",
        ),
        ("watch", "name what to serve by `--kind`, `--context NAME` or `--manifests DIR`"),
        ("up --stack ../x --kind", "can't be the name of a stack"),
        ("up --kind No!", "No!"),
        ("-C /proc up", "/proc/Pulumi.yaml doesn't exist"),
    ],
)
def test_no_project_is_created_without_a_cluster_to_serve(place: Path, terms: str, reported: str) -> None:
    """One sentence with the remedy, or one for each place that was looked at."""
    done = run(*terms.split())
    assert (done.code, done.out) == (Exit.FAILED, "")
    assert reported in done.err.replace(str(Path(sys.executable).parent) + "/", "")
    assert not (place / "data").exists()


@pytest.mark.parametrize(
    ("terms", "reported"),
    [
        ("watch", "`locallb watch --context 'my cloud' --yes` serves it"),
        ("watch --yes", "`locallb watch --context 'my cloud' --yes` serves it"),
        ("up --yes", "`locallb preview --context 'my cloud'` shows what that would do"),
        ("preview", "leads to http://127.0.0.1:9, not to this host"),
        ("up --context shop", "`locallb up --context shop --yes` serves it"),
        ("up --json --manifests . --context shop", "nothing was sent there"),
    ],
)
def test_a_cluster_of_another_host_needs_its_name_and_a_yes(place: Path, terms: str, reported: str) -> None:
    """What its proxy calls 127.0.0.1 is not this host. One sentence with the remedy, and nothing is begun."""
    write_contexts(place, "my cloud", "shop", server="http://127.0.0.1:9", proxy="http://127.0.0.1:9")
    done = run(*terms.split())
    assert done.code == Exit.FAILED
    errors = [line.removeprefix("error: ") for line in done.err.splitlines()]
    assert (json.loads(done.out)["errors"] if "--json" in terms else done.out) == (errors if "--json" in terms else "")
    assert reported in done.err.replace(str(Path(sys.executable).parent) + "/", "")
    assert not (place / "data").exists()


@pytest.mark.parametrize(
    ("terms", "reported"),
    [
        ("--context shpo", ".kube/config has no context shpo; it has shop"),
        ("--kind --context shpo", ".kube/config has no context shpo; it has shop"),
        ("--manifests nowhere", "here/nowhere, it doesn't exist; name another directory"),
    ],
)
@pytest.mark.parametrize("command", ["watch", "up --yes", "preview"])
def test_unknown_stack_name_creates_no_stack(place: Path, command: str, terms: str, reported: str) -> None:
    """A misspelt name is told before anything is written; the right one then begins it."""
    write_contexts(place, "shop")
    done = run(*command.split(), *terms.split())
    assert (done.code, done.out) == (Exit.FAILED, "")
    assert reported in done.err
    assert not (place / "data").exists()
    run("preview", "--context", "shop")
    assert sources(stack_of(place)) == [{"kubernetes": {"name": "shop", "context": "shop"}}]


def test_host_teardown_needs_no_project(place: Path) -> None:
    """What there is to undo doesn't depend on the project, which may be gone."""
    done = run("host", "teardown")
    assert (done.code, done.err) == (Exit.OK, "")
    assert not (place / "data").exists()


@pytest.mark.root(only="is called by sudo")
def test_host_commands_use_the_project_of_the_user_behind_sudo(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where root has none; other commands don't use it."""
    user = pwd.getpwnam("nobody")
    run("preview", "--manifests", str(write_manifests(place)))
    theirs = place / "home/.local/share/local-lb"
    theirs.parent.mkdir(parents=True)
    (place / "data/local-lb").rename(theirs)
    (place / "data/local-lb").mkdir()  # one of root's that was killed while it began
    for path in (theirs, *theirs.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(place / "home")))
    assert "there is no project here" in run("host", "status").err
    monkeypatch.setenv("SUDO_UID", str(user.pw_uid))
    done = run("host", "status")
    assert (done.code, done.err) == (Exit.OK, "")
    assert "there is no project here" in run("status").err


def test_later_options_add_to_what_a_stack_serves(place: Path) -> None:
    """One line says so, once; what it served stays, and so do comments and keys of the user."""
    run("preview", "--manifests", str(write_manifests(place)))
    path, shop = stack_of(place), {"manifests": f"{place}/shop"}
    path.write_text(path.read_text() + "  local-lb:namespaces: [n]  # mine\n")
    before, more = path.read_text().splitlines(), str(write_manifests(place, "more"))
    done = run("up", "--manifests", more)  # refused without a terminal, after the stack's file was written
    reported = f"Added to what stack dev serves: the manifests in {more}; all of it is in ~/data/local-lb/stacks/"
    assert reported in done.out
    assert sources(path) == [shop, {"manifests": more}]
    after = path.read_text().splitlines()
    assert [line for line in after if more not in line] == before
    assert "n/web   " in run("status").out
    assert "Added to what" not in run("preview", "--manifests", more).out
    assert path.read_text().splitlines() == after


@pytest.mark.parametrize(
    ("terms", "reported"),
    [
        (
            "preview --kind",
            "names other sources: the manifests in {place}/shop; `locallb up` with these options adds them",
        ),
        ("up --yes --manifests nowhere", "here/nowhere, it doesn't exist"),
        ("up --yes --kind No!", "No!"),
    ],
)
def test_neither_a_preview_nor_a_mistake_adds_to_a_stack(place: Path, terms: str, reported: str) -> None:
    """Its file stays as it is."""
    run("preview", "--manifests", str(write_manifests(place)))
    text = stack_of(place).read_text()
    done = run(*terms.split())
    assert done.code == Exit.FAILED
    assert reported.format(place=place) in done.err
    assert stack_of(place).read_text() == text


FORMS = [
    "config:\n  local-lb:sources:\n    - kind: all  # every one\n\n  local-lb:proxies: shared\n",
    "config:\n  local-lb:sources: # mine\n  - kubernetes:\n      name: a\n      context: a\n  local-lb:pins: {}\n",
    "config:\n    local-lb:pins: {}\n    local-lb:sources:\n        - {kind: all}\n        # last\n# end\nsalt: v1",
]


@pytest.mark.parametrize(
    ("named", "given", "expected"),
    [
        ("all", "shop", "all"),
        ("[shop]", "shop", "[shop]"),
        ("[shop]", "all", ""),
        ("[shop]", "more", ""),
    ],
)
def test_a_stack_has_one_source_of_kind(place: Path, named: str, given: str, expected: str) -> None:
    """Every cluster includes each; other names are written there by hand, and the file is named."""
    run("preview", "--manifests", str(write_manifests(place)))
    path = stack_of(place)
    path.write_text(f"config:\n  local-lb:sources:\n    - kind: {named}\n")
    done = run("preview", "--kind", given)
    assert ("Added" in done.out, f"{path} names other sources: " in done.err) == (False, not expected)
    assert sources(path) == [{"kind": yaml.safe_load(named)}]


@pytest.mark.parametrize("text", FORMS)
def test_sources_are_added_in_whatever_form_they_are_listed(text: str) -> None:
    """A line for each; every other line stays."""
    added: list[dict[str, object]] = [{"manifests": "/a b"}, {"kubernetes": {"name": "x", "context": "x"}}]
    changed = with_sources(text, added)
    expected, lines = yaml.safe_load(text), changed.splitlines()
    expected["config"]["local-lb:sources"] += added
    assert yaml.safe_load(changed) == expected
    assert [line for line in lines if "/a b" not in line and "name: x" not in line] == text.splitlines()


@pytest.mark.parametrize("command", ["up", "status", "destroy", "init"])
@pytest.mark.parametrize("below", [".", "below"])
def test_a_project_of_others_is_not_touched(
    place: Path, command: str, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from below it; a sentence says so."""
    (place / "here/Pulumi.yaml").write_text("name: infra\nruntime: nodejs\nbackend: {url: 'file://.'}\n")
    before = {"Pulumi.yaml", below} - {"."}
    (place / "here" / below).mkdir(exist_ok=True)
    monkeypatch.chdir(place / "here" / below)
    done = run(command)
    assert done.code == Exit.FAILED
    assert f"{place}/here/Pulumi.yaml is another Pulumi project's, and stays as it is" in done.err
    assert {path.name for path in (place / "here").iterdir()} == before
    assert not (place / "data").exists()


def test_a_program_that_is_a_pipe_blocks_no_command(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may ever write into it."""
    (place / "here/Pulumi.yaml").write_text("name: infra\nruntime: nodejs\n")
    os.mkfifo(place / "here/__main__.py")
    monkeypatch.chdir(place / "here")
    assert "is another Pulumi project's" in run("status").err


@pytest.mark.root(only="can give directories away")
@pytest.mark.parametrize("command", ["preview", "status", "doctor"])
@pytest.mark.parametrize("begun", ["", "begun"])
def test_directory_of_another_user_is_not_used_as_project(place: Path, command: str, begun: str) -> None:
    """Neither begun in it nor run from it: its programs would be somebody else's."""
    root = place / "data/local-lb"
    if begun:
        run("preview", "--manifests", str(write_manifests(place)))
    root.mkdir(parents=True, exist_ok=True)
    before = sorted(root.rglob("*"))
    os.chown(root, 65534, 65534)
    done = run(command)
    reported = f"{root} belongs to user nobody (65534): remove it, or set XDG_DATA_HOME to a directory of your own"
    assert (reported in done.err) == (command != "doctor" and (begun == "begun" or command == "preview"))
    assert str(root) not in done.out
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize("text", ["[" * 5000, "name: 2026-13-13", "a: &a [*a]"])
@pytest.mark.parametrize("command", ["up", "status", "init"])
def test_a_file_that_is_no_project_is_reported(place: Path, command: str, text: str) -> None:
    """However odd, it is no mistake of ours."""
    (place / "here/Pulumi.yaml").write_text(text)
    done = run(command)
    assert done.code == Exit.FAILED
    assert "here/Pulumi.yaml" in done.err
    assert "a mistake in local-lb" not in done.err


def test_init_begins_a_project_whose_own_test_passes(place: Path) -> None:
    """It plans, has a component of its own to extend, and is never written over."""
    done = run("init", "new", "--manifests", str(write_manifests(place)))
    assert done.code == Exit.OK, done.err
    root = place / "here/new"
    first, wheel, second = done.out.splitlines()
    assert first.startswith(f"Created project {root}; ")
    (installed,) = (line for line in (root / "requirements.txt").read_text().splitlines() if not line.startswith("#"))
    assert wheel.endswith(f": {installed.removeprefix('./')}")
    assert second == f"Wrote {root}/stacks/Pulumi.dev.yaml. Look at it, then: `locallb -C new up`"
    expected = {"Pulumi.yaml", "__main__.py", "requirements.txt", ".gitignore", ".gitlab-ci.yml", "components", "tests"}
    assert {path.name for path in root.iterdir()} >= {*expected, "stacks", ".github", ".state"}
    subprocess.run([sys.executable, "tests/test_stacks.py"], cwd=root, check=True)
    with (root / "__main__.py").open("a") as program:
        program.write('\nfrom components.hosts import Hosts\n\nHosts("hosts", plan)\n')
    previewed = run("-C", str(root), "preview")
    assert previewed.code == Exit.OK, previewed.err
    assert "Hosts hosts" in previewed.out
    text = (root / "stacks/Pulumi.dev.yaml").read_text()
    retry = run("init", "new", "--kind", "all")
    assert retry.code == Exit.FAILED
    assert "is there already" in retry.err
    assert (root / "stacks/Pulumi.dev.yaml").read_text() == text


@pytest.mark.parametrize(
    ("present", "reported"),
    [(["README.md", "LICENSE", ".git"], ""), (["web.yaml"], "a project begins in an empty directory")],
)
def test_init_refuses_a_directory_with_other_files(place: Path, present: list[str], reported: str) -> None:
    """A new repository may have a page and a licence."""
    for name in present:
        (place / "here" / name).write_text("x")
    done = run("init")
    assert (done.code == Exit.OK) == (reported == "")
    assert reported in done.err
    assert all((place / "here" / name).read_text() == "x" for name in present)


@pytest.mark.parametrize(
    "terms", [["init"], ["init", "--manifests", "manifests"], ["init", ".", "--manifests", "manifests/"]]
)
def test_a_project_begins_around_its_manifests(place: Path, terms: list[str]) -> None:
    """Which need not be moved for that, and are served."""
    write_manifests(place, "here/manifests")
    done = run(*terms)
    assert (done.code, done.err) == (Exit.OK, "")
    assert 'manifests: "manifests"' in (place / "here/stacks/Pulumi.dev.yaml").read_text()
    assert run("preview").code == Exit.OK


def test_the_remedy_for_a_directory_with_other_files_begins_a_project(place: Path) -> None:
    """As it is printed, also with a space in the directory's name."""
    write_manifests(place, "here/my files")
    refused = " ".join(run("init", "my files").err.split())
    remedy = re.search(r"`locallb ([^`]*)` begins one", refused)
    assert remedy
    done = run(*shlex.split(remedy[1]))
    assert done.code == Exit.OK, done.err
    root = place / "here/my files-lb"
    assert run("-C", str(root), "preview").code == Exit.OK
    assert [path.name for path in (place / "here/my files").iterdir()] == ["all.yaml"]


@pytest.mark.parametrize(
    ("given", "written"), [("shop", "../shop"), ("./new/shop", "shop"), ("new/../shop", "../shop"), ("/srv", "/srv")]
)
def test_manifests_of_a_new_project_are_named_from_where_one_is(place: Path, given: str, written: str) -> None:
    """As a shell completes them; the stack has them relative to the project, which may be cloned elsewhere."""
    (place / "here/new").mkdir()
    (place / "here" / given).mkdir(exist_ok=True)
    done = run("init", "new", "--manifests", given)
    assert (done.code, done.err) == (Exit.OK, "")
    assert sources(place / "here/new/stacks/Pulumi.dev.yaml") == [{"manifests": written}]


def test_a_project_cannot_begin_where_a_file_is(place: Path) -> None:
    """A sentence with the remedy; also where a link leads nowhere."""
    (place / "here/file").write_text("x")
    (place / "here/link").symlink_to("nowhere")
    for name in ("file", "link", "file/below"):
        done = run("init", name)
        assert (done.code, done.out) == (Exit.FAILED, "")
        assert f"{name} can't be made: " in done.err
        assert "is a file or a link; name another directory" in done.err
    assert not (place / "here/nowhere").exists()


def test_pages_are_printed(place: Path) -> None:
    """All of them, wherever one is; unknown ones are told."""
    del place
    assert "configuration" in run("help").out
    assert "<!--" not in run("help").out
    assert run("help", "watch").out.startswith("# ")
    assert "there is no page about 'nothing'" in run("help", "nothing").err
