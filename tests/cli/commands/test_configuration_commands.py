"""The commands `config` and `source`: a stack's file is shown and changed, and never made unusable."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from locallb.cli.failures import Exit
from locallb.cli.session import Session
from locallb.config.parsing import KEYS
from locallb.engine.state.project import load_project
from locallb.model.identities import Home
from locallb.runtimes.single_instance import only_one
from locallb.sources import program_arguments
from locallb.storage import files
from tests.support.stages import Stage

DOCS = Path(__file__).resolve().parents[3] / "docs"
TEXT = """\
# Mine.
config:
  local-lb:sources: # where from
    - manifests: manifests   # the shop's
      name: c
  # Pools come later.

  local-lb:proxies: shared  # saves memory
  other:key: 1
encryptionsalt: v1:abc=
"""


@pytest.fixture
def path(play: Stage) -> Path:
    """Return a stack's file with what users write."""
    path = play.root / "stacks/Pulumi.dev.yaml"
    path.write_text(TEXT)
    return path


def test_keys_are_set_shown_and_removed_and_nothing_else_changes(play: Stage, path: Path) -> None:
    """Several at once, by either spelling, in every stack that is named."""
    done = play.run(
        "config", "set", "http3", "true", "local-lb:namespaces", "[shop, web]", "proxies", "{mode: shared, count: 2}"
    )
    assert done.code == Exit.OK, done.err
    assert done.out.splitlines()[:3] == [
        "http3: (not set) → true",
        'namespaces: (not set) → ["shop", "web"]',
        'proxies: shared → {"mode": "shared", "count": 2}',
    ]
    changed = path.read_text()
    assert [line for line in changed.splitlines() if line not in TEXT.splitlines()] == [
        "  local-lb:proxies: {mode: shared, count: 2}  # saves memory",
        "  local-lb:http3: true",
        "  local-lb:namespaces: [shop, web]",
    ]
    assert play.run("config", "get", "namespaces").out == '["shop", "web"]\n'
    assert play.run("config", "get", "local-lb:http3").out == "true\n"
    shown = {one["key"]: one["value"] for one in play.run("config", "list", "--json").json["keys"]}
    assert shown["proxies"] == {"mode": "shared", "count": 2}
    assert play.run("config", "unset", "http3", "namespaces").code == Exit.OK
    assert play.run("config", "set", "proxies", "shared").code == Exit.OK
    assert path.read_text() == TEXT
    assert play.run("-s", "none", "config", "set", "http3", "true").code == Exit.FAILED


@pytest.mark.parametrize(
    "line",
    [
        "config list",
        "config get sources",
        "config set http3 true",
        "config unset proxies",
        "source list",
        "source add --kind",
        "source add --kind shop --kind test",
    ],
)
def test_outputs_are_as_their_schemas_say(play: Stage, path: Path, line: str) -> None:
    """For each action; also when a source is removed that is not the last."""
    schema = json.loads((DOCS / f"schemas/{line.split(maxsplit=1)[0]}.schema.json").read_text())
    validator = jsonschema_rs.Draft202012Validator(schema)
    validator.validate(play.run(*line.split(), "--json").json)
    if "add" in line:
        validator.validate(play.run("source", "rm", "c", "--json").json)
    assert yaml.safe_load(path.read_text())


MISTAKES = [
    ("set htp3 true", "local-lb:htp3: no such key; did you mean http3?"),
    ("get htp3", "local-lb:htp3: no such key; did you mean http3?"),
    ("unset aws:region", "local-lb:aws:region: no such key"),
    ("set http3 yes", 'local-lb:http3: "yes" is neither true nor false'),
    ("set metrics 192.0.2.1:9477", "local-lb:metrics: 192.0.2.1 isn't a loopback address"),
    ("set http3 null", "has no value; give it one or remove the key"),
    ("set pools 2020-01-01", "holds something that is neither text, number nor list"),
    ("set http3 true network publish", "local-lb:network"),
    ("unset sources", "local-lb:sources: there is none; write a list such as"),
    ("set selector {a:", 'local-lb:selector: must be a mapping, not "{a:"'),
    ("unset http3", "doesn't have local-lb:http3; `"),
    ("get http3", "local-lb:http3 isn't set in stack dev"),
    ("--stack none set http3 true", "there is no stack 'none'"),
]


@pytest.mark.parametrize(("terms", "sentence"), MISTAKES)
def test_what_up_would_refuse_is_refused_in_its_words(play: Stage, path: Path, terms: str, sentence: str) -> None:
    """And nothing is written."""
    done = play.run("config", *terms.split())
    assert done.code == Exit.FAILED
    assert sentence in done.err
    assert path.read_text() == TEXT
    assert not [each for each in path.parent.iterdir() if each != path]


@pytest.mark.parametrize("line", ["set", "set http3", "set a 1 b", "get", "get a b", "unset", "list x"], ids=str)
def test_a_key_without_a_value_is_no_command(play: Stage, path: Path, line: str) -> None:
    """And the sentence has the form."""
    done = play.run("config", *line.split())
    assert (done.code, path.read_text()) == (Exit.USAGE, TEXT)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("config:\n  local-lb:http3: [\n", "is no YAML: line"),
        ("[]\n", "edit the file by hand"),
        ("- a\n", "must hold keys and values, not a list"),
        (
            "config:\n  local-lb:sources: &x [{manifests: manifests}]\n  more: *x\n  local-lb:htp: 1\n",
            "local-lb:htp: no such key",
        ),
    ],
)
def test_a_file_that_up_refuses_stays(play: Stage, path: Path, text: str, sentence: str) -> None:
    """Its mistake is reported, and it is for the user to repair."""
    path.write_text(text)
    done = play.run("config", "set", "http3", "true")
    assert (done.code, path.read_text()) == (Exit.FAILED, text)
    assert sentence in done.err


def test_a_mistake_in_a_file_can_be_repaired(play: Stage, path: Path) -> None:
    """A key without a value, and an unknown one that is set beside what must be removed."""
    path.write_text(TEXT.replace("other:key: 1", "local-lb:http3:"))
    assert play.run("up", "--yes").code == Exit.FAILED
    assert play.run("config", "set", "http3", "false").code == Exit.OK
    assert path.read_text() == TEXT.replace("other:key: 1", "local-lb:http3: false")


def test_the_file_is_replaced_whole_with_its_mode_and_never_through_a_link(play: Stage, path: Path) -> None:
    """So a reader sees the old file or the new one."""
    path.chmod(0o640)
    before = path.stat()
    assert play.run("config", "set", "http3", "true").code == Exit.OK
    assert (path.stat().st_mode, path.stat().st_ino == before.st_ino) == (before.st_mode, False)
    real = path.rename(play.root / "real.yaml")
    path.symlink_to(real)
    text = real.read_text()
    done = play.run("config", "unset", "http3")
    assert (done.code, real.read_text(), path.is_symlink()) == (Exit.FAILED, text, True)
    assert "can't be changed: it is a link" in done.err


def declare(play: Stage, line: str) -> Path:
    """Give all stacks of the project a value of a key."""
    project = play.root / "Pulumi.yaml"
    project.write_text(project.read_text().replace("\nconfig:\n", f"\nconfig:\n  {line}\n", 1))
    return project


def test_a_key_of_the_project_stands_until_the_stack_has_its_own(play: Stage, path: Path) -> None:
    """Of both, the list names the file."""
    project = declare(play, "http3: true")
    rows = {one["key"]: one["from"] for one in play.run("config", "list", "--json").json["keys"]}
    assert (rows["http3"], rows["proxies"]) == (str(project), str(path))
    assert play.run("config", "unset", "http3").code == Exit.FAILED
    assert play.run("config", "set", "http3", "false").code == Exit.OK
    assert play.run("config", "get", "http3").out == "false\n"


def test_a_key_without_a_namespace_is_the_projects(play: Stage, path: Path) -> None:
    """As the official command line writes none, the line stays as it is spelled."""
    path.write_text(TEXT.replace("local-lb:proxies", "proxies"))
    assert play.run("config", "set", "proxies", "per-service").code == Exit.OK
    assert "\n  proxies: per-service  # saves memory\n" in path.read_text()


def test_of_a_key_in_both_spellings_the_one_that_counts_is_changed(play: Stage, path: Path) -> None:
    """And both go."""
    path.write_text(TEXT.replace("  other:key: 1\n", "  http3: false\n  local-lb:http3: true\n"))
    assert play.run("config", "set", "http3", "false").out.startswith("http3: true → false\n")
    assert play.run("config", "get", "http3").out == "false\n"
    assert play.run("config", "unset", "http3").code == Exit.OK
    assert path.read_text() == TEXT.replace("  other:key: 1\n", "")


@pytest.mark.usefixtures("path")
def test_a_running_watch_is_said_to_apply_it(play: Stage) -> None:
    """Otherwise the next update does."""
    assert " up` applies it.\n" in play.run("config", "set", "http3", "true").out
    with only_one(play.root / ".state/locallb/dev~watch", "it"):
        assert "the `watch` that runs (pid " in play.run("config", "set", "http3", "false").out


def test_arguments_of_a_program_are_changed_there(play: Stage, path: Path) -> None:
    """Nothing of the stack's file would count."""
    (play.root / "__main__.py").write_text("import pulumi\n")
    home = Home(load_project(play.root).name, "dev", str(play.root.resolve()))
    program_arguments.write(home, program_arguments.Stated({"lb": {"sources": [{"manifests": "manifests"}]}}))
    done = play.run("config", "set", "http3", "true")
    assert (done.code, path.read_text()) == (Exit.FAILED, TEXT)
    assert "gives the configuration itself: change its arguments there" in done.err


def sources(path: Path) -> object:
    return yaml.safe_load(path.read_text())["config"]["local-lb:sources"]


def test_sources_are_listed_added_and_removed(play: Stage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is relative to where the command runs, and in the file to the project."""
    (play.root / "below/more").mkdir(parents=True)
    monkeypatch.chdir(play.root / "below")
    done = play.run("source", "add", "--manifests", "more", "--kind", "shop", "--kind", "test")
    assert done.code == Exit.OK, done.err
    assert done.out.startswith("Added more, shop, test.\n")
    assert sources(path) == [
        {"manifests": "manifests", "name": "c"},
        {"manifests": "below/more"},
        {"kind": ["shop", "test"]},
    ]
    assert play.run("source", "add", "--manifests", "more", "--kind", "shop").out == "Stack dev has that already.\n"
    rows = [line.split()[:2] for line in play.run("source", "list").out.splitlines()]
    assert rows == [["NAME", "SOURCE"], ["c", "manifests"], ["more", "manifests"], ["shop", "kind"], ["test", "kind"]]
    assert play.run("source", "remove", "sh").out.startswith("Removed shop.\n")
    assert sources(path) == [{"manifests": "manifests", "name": "c"}, {"manifests": "below/more"}, {"kind": ["test"]}]
    assert play.run("source", "rm", "t*", "more").code == Exit.OK
    assert path.read_text() == TEXT


@pytest.mark.parametrize(
    ("terms", "code", "sentence"),
    [
        ("add", Exit.USAGE, "name a source: --manifests PATH"),
        ("add --manifests nowhere", Exit.FAILED, "nowhere, it doesn't exist"),
        ("add --context nowhere", Exit.FAILED, "repair that file, or set KUBECONFIG"),
        ("add --kind No!", Exit.FAILED, "No!"),
        ("remove c", Exit.FAILED, "local-lb:sources: there is none; write a list such as"),
        ("remove d", Exit.FAILED, "there is no source 'd'; name one: c"),
        ("remove d*", Exit.FAILED, "there is no source 'd*'; name one: c"),
        ("remove", Exit.USAGE, "NAME"),
    ],
)
def test_a_source_that_up_would_refuse_is_refused(
    play: Stage, path: Path, terms: str, code: int, sentence: str
) -> None:
    """And nothing is written."""
    done = play.run("source", *terms.split())
    assert (done.code, path.read_text()) == (code, TEXT)
    assert sentence in done.err


def test_a_source_is_removed_from_the_list_as_it_is_by_then(
    play: Stage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command may have removed one before it meanwhile."""
    for name in ("more", "most"):
        (play.root / name).mkdir()
        assert play.run("source", "add", "--manifests", str(play.root / name)).code == Exit.OK
    lock = files.locked

    def late(directory: Path) -> AbstractContextManager[None]:
        patch.undo()
        assert play.run("source", "rm", "c").code == Exit.OK
        return lock(directory)

    with monkeypatch.context() as patch:
        patch.setattr("locallb.storage.files.locked", late)
        assert play.run("source", "rm", "more").code == Exit.OK
    assert sources(path) == [{"manifests": str(play.root / "most")}]


def test_a_mistake_in_the_list_of_sources_is_the_users(play: Stage, path: Path) -> None:
    """As `up` tells it."""
    path.write_text("config:\n  local-lb:sources: manifests\n")
    done = play.run("source", "add", "--kind", "shop")
    assert done.code == Exit.FAILED
    assert "local-lb:sources: must be a list" in done.err


def test_sources_of_the_project_are_those_of_all_stacks(play: Stage, path: Path) -> None:
    """One stack can't add to them, as its own list replaces them."""
    project = declare(play, 'sources: \'[{"manifests": "manifests"}]\'')
    path.write_text("config:\n  local-lb:http3: true\n")
    (play.root / "more").mkdir()
    done = play.run("source", "add", "--manifests", str(play.root / "more"))
    assert done.code == Exit.FAILED
    assert f"the sources of stack dev are those of {project}" in done.err


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (["config", ""], {"list", "get", "set", "unset"}),
        (["config", "get", "acc"], {"accessLogs"}),
        (["config", "set", ""], {*KEYS}),
        (["config", "set", "http3", ""], set()),
        (["config", "set", "http3", "true", "pod"], {"podRoutes", "podCIDRs"}),
        (["config", "unset", "http3", "htt"], {"http3"}),
        (["source", "remove", ""], {"c"}),
        (["help", "state", ""], {"check", "restore", "adopt"}),
        (["help", "state", "check", ""], set()),
        (["help", "con"], {"config", "configuration"}),
    ],
)
@pytest.mark.usefixtures("path")
def test_keys_and_sources_are_completed(play: Stage, terms: list[str], expected: set[str]) -> None:
    """As subcommands are, also behind `help`."""
    done = play.run("completion", "answer", "--", "-C", str(play.root), *terms)
    assert {*done.out.split()} == expected


@pytest.mark.usefixtures("path")
def test_a_stack_is_not_in_the_way_of_the_files_of_another(play: Stage) -> None:
    """Stacks may be called `dev.watch` and `dev.delays`."""
    for name in ("dev.watch", "dev.delays", "dev.all-services"):
        (play.root / ".state/locallb" / name).mkdir(parents=True)
    session = Session.open(play.root, "dev")
    with only_one(session.watch_lock, "watch"), session.serving_all(requested=True):
        assert session.published_file.parent.is_dir()
        assert not session.published_file.exists()


@pytest.mark.usefixtures("path")
def test_a_watch_of_an_earlier_version_is_found(play: Stage) -> None:
    """Its lock was called as the stack `dev.watch` may be."""
    with only_one(play.root / ".state/locallb/dev.watch", "it"):
        assert "the `watch` that runs (pid " in play.run("config", "set", "http3", "true").out
        assert "runs (pid " in play.run("destroy", "--yes").err
