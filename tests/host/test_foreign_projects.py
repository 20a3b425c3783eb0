"""A project that another user left in a directory like /tmp, as the users of one host meet it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.host import LOCALLB, PYTHON, Project, project

pytestmark = [pytest.mark.slow, pytest.mark.root(only="can act as two other users")]
THEIRS, MINE = 65533, 65532
LEAVE = """
import os, pathlib, sys
import yaml
from locallb.cli.project import PROGRAM, program_files
os.umask(0o022)
root = pathlib.Path(sys.argv[1])
for name, text in program_files("", "").items():
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(text)
(root / ".state").mkdir(0o777)
(root / "stacks").mkdir()
pools = [{"name": "p", "addresses": ["9.9.9.9/32"]}]
stack = {"config": {"local-lb:sources": [{"manifests": "none"}], "local-lb:pools": pools}}
(root / "stacks" / "Pulumi.dev.yaml").write_text(yaml.safe_dump(stack))
note = f"import os, pathlib\\npathlib.Path({str(root)!r}, f'ran-as-{{os.getuid()}}').touch()\\n"
(root / "__main__.py").write_text(PROGRAM.replace("\\nfrom", "\\n" + note + "from", 1))
"""
"""A project whose program leaves a file when it is run."""


@pytest.fixture
def public() -> Iterator[tuple[Project, Path]]:
    """Return a sticky directory that everybody may write to, in which one user left a project."""
    with project(owner=MINE) as made:
        directory = made.root / "public"
        made.space.shell(f"mkdir {directory}; chmod 1777 {directory}")
        remaining = made.space.run(PYTHON, "-c", LEAVE, str(directory), user=THEIRS)
        assert remaining.code == 0, remaining.err
        yield made, directory


@pytest.mark.parametrize("terms", ["preview", "up --yes", "watch --plain", "status", "doctor", "gc"])
def test_another_user_who_works_there_runs_nothing_of_it(public: tuple[Project, Path], terms: str) -> None:
    """Though everything may be read, and the directory itself is root's."""
    made, directory = public
    command = shlex.join([*LOCALLB, *terms.split()])
    environment = {"HOME": str(made.root), "XDG_STATE_HOME": f"{made.root}/s", "XDG_DATA_HOME": f"{made.root}/data"}
    done = made.space.run("sh", "-c", f"cd {directory} && exec {command}", user=MINE, **environment)
    assert done.code == 1
    assert f"{directory}/Pulumi.yaml belongs to user {THEIRS}: nothing of this project was run" in done.err
    assert f"-C {directory} {terms.partition(' ')[0]}" in done.err
    assert [*directory.glob("ran-as-*")] == []


def test_named_on_purpose_it_is_run(public: tuple[Project, Path]) -> None:
    """As whoever names it."""
    made, directory = public
    environment = {"HOME": str(made.root), "XDG_STATE_HOME": f"{made.root}/s", "XDG_DATA_HOME": f"{made.root}/data"}
    made.space.run(*LOCALLB, "-C", str(directory), "preview", user=MINE, **environment)
    assert [path.name for path in directory.glob("ran-as-*")] == [f"ran-as-{MINE}"]


def test_root_sets_nothing_up_for_it(public: tuple[Project, Path]) -> None:
    """Neither for the user who called sudo there, nor for root itself."""
    made, directory = public
    command = f"cd {directory} && exec {shlex.join([*LOCALLB, 'host', 'setup', '--yes'])}"
    for caller in ({"SUDO_UID": str(MINE), "SUDO_GID": str(MINE)}, {}):
        done = made.space.run("sh", "-c", command, user=0, **caller)
        assert (done.code, done.out) == (1, "")
        assert f"belongs to user {THEIRS if caller else MINE}" in done.err  # the latter has the directory around
        assert "host setup`" in done.err
    assert "9.9.9.9" not in made.space.shell("ip route show table local")
