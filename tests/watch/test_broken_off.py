"""What a start may take for done: not what broke off, nor what somebody else wrote between two updates."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pulumi
import pytest

from locallb.engine.deploy.scope import only
from locallb.engine.state.urns import root_urn
from locallb.model.identities import Home, ObjectKey
from locallb.watch.converge import Converger
from tests.engine.support import Bench, Thing, World, make_project

NAMES = ("k/n/a", "k/n/b", "k/n/c")
KEYS = [ObjectKey.parse(name) for name in NAMES]


class LoadBalancer(pulumi.ComponentResource):
    """A root with two resources, one after the other."""

    def __init__(self, name: str, version: str) -> None:
        super().__init__("locallb:index:LoadBalancer", name, {"digest": version})
        first = Thing("ProxyConfig", name, {"x": version}, pulumi.ResourceOptions(parent=self))
        options = pulumi.ResourceOptions(parent=self, depends_on=[first])
        Thing("ServiceConfig", f"{name}/z", {"x": version}, options)


def declaring(version: str, names: tuple[str, ...] = NAMES) -> Callable[[], None]:
    """Return a program that declares some."""

    def program() -> None:
        for name in names:
            LoadBalancer(name, version)

    return program


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return where a stack may be deployed, with its directory of readings."""
    made = Bench(make_project(tmp_path / "p"), World())
    (tmp_path / "p/.state/locallb/dev").mkdir(parents=True)
    return made


def learnt(bench: Bench) -> Converger:
    """Start."""
    converger = Converger(Home("local-lb", "dev", str(bench.project.root)), bench.engine())
    converger.learn()
    return converger


def test_what_broke_off_is_declared_again_after_a_start(bench: Bench) -> None:
    """Of a root that is in the state with its new digest, what is below may never have been declared."""
    engine = bench.engine(parallel=1)
    converger = Converger(Home("local-lb", "dev", str(bench.project.root)), engine)
    engine.up(declaring("1"))
    converger.learn()
    bench.world.control = {"sleep": {f"ProxyConfig::{name}": 0.3 for name in NAMES}}
    stopping = threading.Timer(0.15, engine.cancel)
    stopping.start()
    result = engine.up(declaring("2"))
    stopping.join()
    bench.world.control = {}
    assert not result.is_whole
    converger.note(KEYS, result)
    assert not any(learnt(bench)._checks.needs_look_only([key]) for key in KEYS)


def test_what_somebody_else_wrote_is_no_work_of_ours(bench: Bench) -> None:
    """Another version's update between two of ours."""
    engine = bench.engine()
    converger = Converger(Home("local-lb", "dev", str(bench.project.root)), engine)
    converger.note(KEYS, engine.up(declaring("1")))
    converger.learn()
    bench.engine().up(declaring("other"))
    scope = only([root_urn("local-lb", "dev", "locallb:index:LoadBalancer", NAMES[2])])
    converger.note(KEYS[2:], engine.up(declaring("2", NAMES[2:]), scope=scope))
    assert not any(learnt(bench)._checks.needs_look_only([key]) for key in KEYS)
