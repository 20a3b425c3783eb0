"""The command `service`, with a systemctl of our own that notes what it is told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from locallb.cli.arguments import parse
from locallb.cli.commands.service import WRITTEN, Unit
from locallb.cli.failures import Exit
from tests.cli.commands.conftest import play  # noqa: F401 - a fixture
from tests.support.schemas import mistakes
from tests.support.stages import Stage

DOCS = Path(__file__).parents[3] / "docs"
SYSTEMCTL = """#!/bin/sh
[ -e "$HOME/none" ] && { echo "Failed to connect to bus" >&2; exit 1; }
[ "$2" = show ] || [ "$2" = show-environment ] || echo "$@" >>"$HOME/orders"
[ "$2" = show ] && cat "$HOME/shown"
exit 0
"""
LOGINCTL = "#!/bin/sh\necho no\n"
RUNNING = "LoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\nMainPID=7\n"
ABSENT = "LoadState=not-found\nActiveState=inactive\nSubState=dead\nUnitFileState=\nMainPID=0\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of a user with such a systemd."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("systemctl", SYSTEMCTL), ("loginctl", LOGINCTL)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "shown").write_text(RUNNING)
    return tmp_path


def units(home: Path) -> list[Path]:
    """Return the units that there are."""
    return sorted(home.glob(".config/systemd/user/*"))


def test_a_service_is_installed_stopped_and_removed(play: Stage, home: Path) -> None:  # noqa: F811 - the fixture
    """Each action tells systemd what it has to; the file is all that it writes."""
    done = play.run("service", "install")
    assert done.code == Exit.OK, done.err
    (file,) = units(home)
    text = file.read_text()
    assert text.startswith(WRITTEN)
    assert f"WorkingDirectory={play.root}\n" in text
    assert f'Environment="LOCALLB_LEDGER={play.state_home}/ledger"\n' in text
    assert "loginctl enable-linger" in done.out
    assert play.run("service", "install").code == Exit.OK
    for action in ("stop", "start", "remove"):
        assert play.run("service", action).code == Exit.OK
    assert units(home) == []
    one = ["daemon-reload", f"enable {file.name}", f"restart {file.name}"]
    rest = [f"stop {file.name}", f"start {file.name}", f"disable --now {file.name}", "daemon-reload"]
    assert (home / "orders").read_text().splitlines() == [f"--user {order}" for order in (*one, *one, *rest)]


def test_status_shows_whether_it_runs(play: Stage, home: Path) -> None:  # noqa: F811 - the fixture
    """With the exit code, too."""
    done = play.run("service", "status", "--json")
    assert (done.code, done.json["active"], done.json["pid"], done.json["lingers"]) == (0, True, 7, False)
    schema = json.loads((DOCS / "schemas/service.schema.json").read_text())
    assert list(mistakes(done.json, schema, schema)) == []
    (home / "shown").write_text(ABSENT)
    done = play.run("service", "status")
    assert (done.code, done.out.startswith("Stack dev has no service; ")) == (1, True)


def test_the_file_of_another_program_stays(play: Stage, home: Path) -> None:  # noqa: F811 - the fixture
    """Neither overwritten nor removed."""
    assert play.run("service", "install").code == Exit.OK
    (file,) = units(home)
    file.write_text("[Service]\n")
    for action in ("install", "remove"):
        done = play.run("service", action)
        assert (done.code, "wasn't written by" in done.err) == (1, True)
    assert file.read_text() == "[Service]\n"


def test_what_is_missing_is_reported(play: Stage, home: Path) -> None:  # noqa: F811 - the fixture
    """A unit, a stack, a systemd that answers."""
    assert "there is no service of stack dev" in play.run("service", "start").err
    assert "there is no stack 'x'" in play.run("--stack", "x", "service", "install").err
    (home / "none").touch()
    assert "systemd doesn't answer (Failed to connect to bus)" in play.run("service", "install").err
    assert not (home / "orders").exists()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_understands_the_unit_of_a_project_with_an_odd_path(tmp_path: Path, home: Path) -> None:
    """Spaces and percent signs are what they are."""
    odd = tmp_path / "a 100% x"
    odd.mkdir()
    command = odd / "locallb"
    command.symlink_to(shutil.which("true") or "/bin/true")
    template = (Path(__file__).parents[3] / "deploy/locallb-watch@.service").read_text()
    unit = Unit("locallb-watch-dev-0.service", home / "unit.service", odd, "dev")
    text = unit.text(template, str(command), {"KUBECONFIG": f"{odd}/k"})
    assert parse(["--stack", "dev", "watch", "--plain"]).command == "watch"
    (tmp_path / unit.name).write_text(text)
    terms = ["systemd-analyze", "--user", "verify", str(tmp_path / unit.name)]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(terms, check=False, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, ""), text
