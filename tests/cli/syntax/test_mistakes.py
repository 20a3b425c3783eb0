"""What newcomers type and write that isn't meant so: each gets a sentence that says what is wrong and what to do."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from locallb.cli.failures import Exit
from locallb.model.errors import REMEDIES
from locallb.storage.files import FilesError, write
from tests.support.manifests import node, port, service
from tests.support.stages import CHECKOUT, Stage, stage


@pytest.fixture
def play() -> Iterator[Stage]:
    """Return a project of one Service that was never deployed."""
    with stage() as made:
        made.write("s.yaml", node(), service("web", port(8080, 30000)))
        yield made


@pytest.mark.parametrize(
    ("terms", "reported"),
    [
        ("upp", "'upp' isn't a command; did you mean up?\n"),
        ("down", "did you mean destroy?"),
        ("version", "did you mean --version?"),
        ("stack ls", "'ls' isn't one of list, rm, remove; did you mean list?"),
        ("completion", "SHELL is missing: bash, zsh, fish\n"),
        ("completion tcsh", "'tcsh' isn't one of bash, zsh, fish\n"),
        ("state", "ACTION is missing: check, restore, adopt\n"),
        ("state chekc", "did you mean check?"),
        ("up dev", "`up` doesn't take 'dev'; a stack is named by `--stack dev`, a Service `--target dev`\n"),
        ("destroy dev", "`destroy` doesn't take 'dev'; a stack is named by `--stack dev`\n"),
        ("host teardown --persist", "`host teardown` doesn't take '--persist'; `locallb host teardown --help` lists"),
        ("up --yes=true", "-y/--yes: takes no value, but was given 'true'"),
        ("up --fail-on Rejected", "did you mean rejected?"),
        ("up --fail-on rejected,pending", "say it once for each: --fail-on rejected --fail-on pending\n"),
        ("preview --format pdf", "'pdf' isn't one of tree, markdown, json, html"),
    ],
)
def test_unknown_words_are_refused_with_choices_and_a_suggestion(play: Stage, terms: str, reported: str) -> None:
    """The word, the choices, and what was meant, where that can be guessed."""
    done = play.run(*terms.split())
    assert (done.code, done.out) == (Exit.USAGE, "")
    assert reported in done.err
    assert "answer" not in done.err


@pytest.mark.parametrize(
    ("terms", "reported"),
    [
        ("--stack Dev status", "there is no stack 'Dev': did you mean 'dev'?"),
        ("--stack dev.yaml status", "there is no stack 'dev.yaml': did you mean 'dev'?"),
        ("--stack stacks/Pulumi.dev.yaml status", "can't be the name of a stack; use letters, digits, '-', '_' and"),
        ("--stack stacks/Pulumi.dev.yaml status", "such as dev"),
        ("--stack mine init manifests", "manifests is no project, it has no Pulumi.yaml"),
        ("--stack mine init manifests", "`--manifests manifests`"),
    ],
)
def test_names_that_are_not_there(play: Stage, terms: str, reported: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is named, or what to say instead; nothing is written."""
    monkeypatch.chdir(play.root)
    before = play.files()
    done = play.run(*terms.split())
    assert (done.code, done.out) == (Exit.FAILED, "")
    assert reported in " ".join(done.err.split())
    assert play.files() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may listen on every port")
def test_a_port_that_only_root_may_have_is_reported(play: Stage) -> None:
    """In a process of its own: the loop asks what its output is."""
    done = play.spawn("watch", "--metrics", "127.0.0.1:1")
    assert (done.code, done.out) == (Exit.FAILED, "")
    assert "choose another port, from 1024 on, every user may" in " ".join(done.err.split())


def test_a_stack_begins_with_what_is_missing_reported(play: Stage) -> None:
    """The directory that `init` names needn't be there, but `up` needs it."""
    done = play.run("--stack", "mine", "init", "--manifests", "mine")
    assert done.code == Exit.OK
    assert f"{play.root}/mine isn't there yet" in " ".join(done.err.split())
    assert '    - manifests: "mine"\n' in (play.root / "stacks/Pulumi.mine.yaml").read_text()
    assert "isn't there yet" not in play.run("--stack", "other", "init").err


@pytest.mark.parametrize(
    ("directory", "reported"),
    [
        ("manifests/*.yaml", "patterns aren't expanded: name the directory"),
        ("$HOME/manifests", "variables aren't expanded: write the path itself"),
        ("https://example.com/all.yaml", "what lies elsewhere isn't fetched: download it"),
        ("nowhere", "name a directory of manifests, or one such file"),
    ],
)
def test_sources_that_are_no_paths(play: Stage, directory: str, reported: str) -> None:
    """What some tools expand or fetch is taken as it stands here, and that is told."""
    play.configure(sources=[{"manifests": directory, "name": "c"}])
    done = play.run("status")
    assert done.code == Exit.FAILED
    assert reported in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("metadata: {name: {{ .Release.Name }}}\n", "m.yaml line 1 can't be read (it is a template: put here what"),
        ("{{- if .Values.on }}\nkind: Service\n{{- end }}\n", "(it is a template: put here what `helm template`"),
        ("a: [\n", "m.yaml line 2 can't be read"),
    ],
)
def test_files_that_are_no_manifests(play: Stage, text: str, reported: str) -> None:
    """A chart's templates are told from YAML with a mistake."""
    play.write("s.yaml")
    (play.manifests / "m.yaml").write_text(text)
    done = play.run("status")
    assert done.code == Exit.FAILED
    assert reported in " ".join(done.err.split())
    (play.manifests / "s.yaml").unlink()
    assert "c has no manifest that could be read." in " ".join(play.run("status").out.split())


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("name: 5", "name is 5; use letters, digits"),
        ("name: a/../../b", "name is 'a/../../b'; use letters, digits"),
        ("name: ..", "name is '..'; use letters, digits"),
        ("nome: local-lb", "has no name; add a line such as `name: local-lb`"),
    ],
)
def test_projects_that_cannot_be_called_so(play: Stage, line: str, reported: str) -> None:
    """A name is part of paths: of one that leads elsewhere nothing is made."""
    path = play.root / "Pulumi.yaml"
    path.write_text(path.read_text().replace("name: local-lb", line, 1))
    done = play.run("status")
    assert done.code == Exit.FAILED
    assert reported in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("variable", "reported"),
    [
        (
            "LOCALLB_LEDGER",
            "Pulumi.yaml isn't a directory: correct LOCALLB_LEDGER, or move what stands there elsewhere",
        ),
        ("XDG_STATE_HOME", "Pulumi.yaml can't be made (File exists): give a writable XDG_STATE_HOME"),
    ],
)
def test_places_that_cannot_be_used(play: Stage, variable: str, reported: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the variable that leads there."""
    with monkeypatch.context() as here:
        here.setenv(variable, str(play.root / "Pulumi.yaml"))
        done = play.run("up", "--yes")
    assert done.code == Exit.FAILED
    assert reported in " ".join(done.err.split())


def test_a_program_that_is_gone_is_reported(play: Stage) -> None:
    """It can be brought back."""
    (play.root / "__main__.py").unlink()
    done = play.run("preview")
    assert done.code == Exit.FAILED
    assert f"{play.root}/__main__.py doesn't exist, and it is the program; bring it back" in " ".join(done.err.split())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_files_that_cannot_be_written_are_reported_with_what_helps(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a proxy's, where the state home is full."""

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(FilesError) as caught:
        write(tmp_path / "eds.json", "{}")
    assert str(caught.value) == f"{tmp_path}/eds.json can't be written: {os.strerror(number)}; {REMEDIES[number]}"


def test_state_files_stay_readable_under_any_umask(play: Stage) -> None:
    """Otherwise the next command would have a state that this user may not read."""
    before = os.umask(0o777)
    try:
        assert play.run("--stack", "empty", "destroy", "--yes").code == Exit.FAILED
        play.configure(sources=[{"manifests": "none", "name": "c"}])
        (play.root / "none").mkdir()
        (play.root / "none").chmod(0o700)
        (play.root / "stacks/Pulumi.dev.yaml").chmod(0o600)
        assert play.run("up", "--yes").code == Exit.OK
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o700 for path in (play.root / ".state").rglob("*")}
    assert modes
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items()), modes


@pytest.mark.parametrize(
    ("command", "code", "reported"),
    [
        ([sys.executable, "-m", "locallb", "--version"], 0, "local-lb "),
        ([sys.executable, "__main__.py"], 1, "error: this program needs an engine: run `locallb up`"),
        (["make", "-n", "stack=mine", "status"], 2, "The stack is named in capitals: STACK=mine"),
    ],
)
def test_other_entry_points_work_or_name_the_right_command(command: list[str], code: int, reported: str) -> None:
    """They work, or tell which way does."""
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert reported in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["msgspec", "yaml", "argparse"])
def test_modules_of_the_current_directory_are_not_taken_for_libraries(module: str, tmp_path: Path) -> None:
    """It may be anybody's; Python itself looks for modules there first."""
    (tmp_path / f"{module}.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    command = [sys.executable, "-m", "locallb", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.startswith("local-lb ")) == (0, True), done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("terms", "instead"),
    [
        ("up --yes", "`pulumi up --stack dev`"),
        ("preview", "`pulumi preview --stack dev`"),
        ("status", "`pulumi stack output --stack dev`"),
        ("open web", "`pulumi stack output --stack dev`"),
        ("watch", "`pulumi up --stack dev`"),
    ],
)
def test_a_program_in_another_language_is_left_to_pulumi(play: Stage, terms: str, instead: str) -> None:
    """Its runtime is named, and which command has the purpose; nothing of a program in Python is asked for."""
    file = play.root / "Pulumi.yaml"
    text = file.read_text().replace("name: python", "name: nodejs")
    file.write_text(text.replace("\nconfig:\n", "\nconfig:\n  a: 1\n"))
    (play.root / "__main__.py").unlink()
    done = play.run(*terms.split())
    sentence = " ".join(done.err.split())
    assert done.code == Exit.FAILED
    assert f"{file} is written for the runtime nodejs" in sentence
    assert instead in sentence


def test_a_stack_of_a_program_in_another_language_is_destroyed(play: Stage) -> None:
    """What it has on this host is in the state, whatever language said it."""
    file = play.root / "Pulumi.yaml"
    file.write_text(file.read_text().replace("name: python", "name: nodejs"))
    (play.root / "__main__.py").unlink()
    for terms in ("destroy --yes", "gc"):
        done = play.run(*terms.split())
        assert done.code == Exit.OK, done.err
