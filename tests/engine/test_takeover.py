"""The official command line and the engine take over each other's stacks."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from locallb.engine.core.declared import only
from locallb.engine.engine import Engine
from locallb.engine.state.project import load_project
from tests.engine.live import Names, make_live_project, run_cli
from tests.support.balancers import declare, roots
from tests.support.engine import Inputs, World, WorldProvider
from tests.support.official_cli import needs_cli

pytestmark = [pytest.mark.pulumi, needs_cli]
SPEC: Inputs = {
    "balancers": {
        "alpha": {"address": "127.77.0.1", "port": 80, "digest": "d1"},
        "beta": {"address": "127.77.0.2", "port": 443, "digest": "d1"},
    }
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a project that both can run."""
    return make_live_project(tmp_path / "p")


def engine_of(folder: Path, control: Inputs | None = None) -> Engine:
    """Return the engine, with the world that the plugin has."""
    world: Any = World(control=control or {})
    world.things = Names(folder / "world")
    return Engine(load_project(folder, {}), "dev", {"locallb": WorldProvider(world)})


def test_the_command_line_has_nothing_to_do_after_the_engine(folder: Path) -> None:
    """It even destroys what the engine made."""
    assert engine_of(folder).up(lambda: declare(SPEC)).ok
    code, stdout, stderr = run_cli(folder, ["preview", "--expect-no-changes"], SPEC)
    assert code == 0, stdout + stderr
    code, stdout, stderr = run_cli(folder, ["destroy", "--yes", "--skip-preview"], SPEC)
    assert code == 0, stdout + stderr
    assert len(Names(folder / "world")) == 0
    assert engine_of(folder).resources() == ()


def test_the_engine_has_nothing_to_do_after_the_command_line(folder: Path) -> None:
    """It even destroys what the command line made."""
    run_cli(folder, ["stack", "init"], SPEC)
    code, stdout, stderr = run_cli(folder, ["up", "--yes", "--skip-preview"], SPEC)
    assert code == 0, stdout + stderr
    engine = engine_of(folder)
    assert engine.up(lambda: declare(SPEC), refresh=True).unchanged
    assert engine.destroy().ok
    assert len(Names(folder / "world")) == 0
    shutil.rmtree(folder / "world")


def test_both_engines_alternate_through_replacements_and_failures(folder: Path) -> None:
    """After each run of the engine the command line finds exactly what is left to do."""
    spec: Inputs = {"balancers": {"alpha": dict(SPEC["balancers"]["alpha"]), "beta": SPEC["balancers"]["beta"]}}
    alpha = spec["balancers"]["alpha"]

    def nothing_to_do() -> bool:
        return run_cli(folder, ["preview", "--expect-no-changes"], spec)[0] == 0

    def cli_finishes(terms: str) -> None:
        assert terms in run_cli(folder, ["preview"], spec)[1]
        assert run_cli(folder, ["up", "--yes", "--skip-preview"], spec)[0] == 0
        assert engine_of(folder).up(lambda: declare(spec)).unchanged

    assert engine_of(folder).up(lambda: declare(spec)).ok
    alpha["address"] = "127.77.0.9"
    assert engine_of(folder).up(lambda: declare(spec)).ok
    assert nothing_to_do()
    alpha["port"] = 8080
    assert engine_of(folder).up(lambda: declare(spec), scope=only(roots("alpha"))).ok
    assert nothing_to_do()
    alpha["address"] = "127.77.0.10"
    assert not engine_of(folder, {"fail_delete": {"LoopbackAddress::alpha": "busy"}}).up(lambda: declare(spec)).ok
    cli_finishes("delete original")
    alpha["binary"] = "envoy-3"
    assert not engine_of(folder, {"fail": {"EnvoyProcess::alpha": "no"}}).up(lambda: declare(spec)).ok
    cli_finishes("+-1 to replace")
    assert engine_of(folder).refresh().ok
    assert nothing_to_do()
    assert run_cli(folder, ["destroy", "--yes", "--skip-preview"], spec)[0] == 0
    assert len(Names(folder / "world")) == 0
