"""What every area's tests share: golden files, the tiers, certificates."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.backends import Backend, backends
from tests.support.certificates import Authority, Pair
from tests.support.environment import retained
from tests.support.goldens import GOLDENS, Golden
from tests.support.stages import Stage, stage

# Each process of a run would compile all tests again, and each command of theirs the whole program.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = ["tests.tiers", "tests.workers", "tests.left_behind"]
# CI judges a commit: the same examples each time, half as many. All other runs look for new ones, the nightly too. How
# long an example takes says something about the machine and its other work, and nothing about the law.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("untimed", _UNTIMED)
settings.register_profile("ci", _UNTIMED, derandomize=True, max_examples=50)
settings.load_profile("ci" if os.environ.get("CI") else "untimed")

# A shell that starts us in the background has us ignore interrupts, nohup hangups, and with us each `locallb` that a
# test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-goldens`."""
    parser.addoption("--update-goldens", action="store_true", help="write tests/goldens again instead of comparing")


@pytest.fixture
def no_engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let no Docker and no Podman be here: containers that others left on this host are nobody's in this test."""
    for variable in ("DOCKER_HOST", "CONTAINER_HOST"):
        monkeypatch.setenv(variable, f"unix://{tmp_path}/nobody.sock")


@pytest.fixture(autouse=True)
def _places() -> Iterator[None]:
    """Leave the variables that say where things are as this test found them, whatever it undid first."""
    with retained(("XDG_STATE_HOME", "LOCALLB_LEDGER")):
        yield


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Make who signs certificates for a module's tests."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    """Make a certificate that every listener may use."""
    return authority.sign("DNS:a.test")


@pytest.fixture
def play() -> Iterator[Stage]:
    """Return a project of its own, destroyed at the end."""
    with stage() as made:
        yield made


@pytest.fixture
def backend() -> Iterator[Callable[..., Backend]]:
    """Make backends that are closed at the end."""
    with backends() as make:
        yield make


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Give access to the golden files; see `Golden`."""
    return Golden(GOLDENS, bool(request.config.getoption("--update-goldens")))
