"""`locallb plugin install` puts the provider where the Pulumi CLI looks for plugins."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from locallb import __version__
from locallb.cli.failures import Exit
from tests.support.own_projects import place, run
from tests.support.schemas import mistakes

__all__ = ["place"]
SCHEMA = Path(__file__).parents[3] / "docs/schemas/plugin-install.schema.json"


def test_what_is_installed_starts_wherever_it_is_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells its port; a second installation replaces the first, and no project is begun."""
    monkeypatch.setenv("PULUMI_HOME", str(place / "pulumi"))
    for _ in range(2):
        done = run("plugin", "install", "--json")
        assert done.code == Exit.OK, done.err
    schema = json.loads(SCHEMA.read_text())
    assert list(mistakes(done.json, schema, schema)) == []
    script = place / f"pulumi/plugins/resource-locallb-v{__version__}/pulumi-resource-locallb"
    assert done.json["path"] == str(script)
    assert [path.name for path in script.parent.iterdir()] == [script.name]
    with subprocess.Popen([str(script), "127.0.0.1:1"], cwd=place, stdout=subprocess.PIPE, text=True) as plugin:
        assert plugin.stdout
        reported = plugin.stdout.readline()
        plugin.terminate()
    assert int(reported) > 0
    assert not (place / "data").exists()


def test_it_goes_into_the_users_own_home(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PULUMI_HOME."""
    monkeypatch.delenv("PULUMI_HOME", raising=False)
    monkeypatch.setenv("HOME", str(place / "new"))
    done = run("plugin", "install")
    assert (done.code, done.err) == (Exit.OK, "")
    assert str(place / "new/.pulumi/plugins/") in done.out


def test_another_version_of_this_installation_is_replaced(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another installation wrote stays."""
    monkeypatch.setenv("PULUMI_HOME", str(place / "pulumi"))
    script = Path(run("plugin", "install", "--json").json["path"])
    earlier, foreign = (script.parent.with_name(f"resource-locallb-v{n}") / script.name for n in ("0.0.1", "0.0.2"))
    for path, text in ((earlier, script.read_text()), (foreign, script.read_text() + "# another's\n")):
        path.parent.mkdir()
        path.write_text(text)
    assert run("plugin", "install").code == Exit.OK
    assert [path.exists() for path in (script, earlier.parent, foreign)] == [True, False, True]


def test_a_home_that_is_a_file_is_reported(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the remedy."""
    (place / "file").write_text("x")
    monkeypatch.setenv("PULUMI_HOME", str(place / "file"))
    done = run("plugin", "install")
    assert (done.code, done.out) == (Exit.FAILED, "")
    assert "set PULUMI_HOME to another directory" in done.err
