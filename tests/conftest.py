"""What every area's tests share: golden files, the tiers, certificates."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.environment import retained
from tests.envoy.certificates import Authority, Pair

pytest_plugins = ["tests.tiers", "tests.workers", "tests.left_behind"]
GOLDENS = Path(__file__).parent / "goldens"
# CI judges a commit: the same examples each time. Everybody else's runs look for new ones. How long an example takes
# says something about the machine and its other work, and nothing about the law.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("untimed", _UNTIMED)
settings.register_profile("ci", _UNTIMED, derandomize=True)
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


@dataclass(frozen=True)
class Golden:
    """Expected texts under tests/goldens, compared byte for byte.

    A case is a directory, `tests/goldens/<area>/<case>`, and every file in it is an output, except the ones named as
    inputs. `pytest --update-goldens` writes the outputs again and deletes stale ones; the diff is then read in git.

        def test_rendering(golden):
            golden.check("envoy/tcp", {"lds.json": text, …})             # the whole directory
            golden.check("plan/chart", outputs, inputs={"services.yaml"})

        def test_no_case_is_stale(golden):
            golden.cases("envoy", CASES)                                 # the directories of the area
    """

    root: Path
    update: bool

    def path(self, case: str) -> Path:
        """Return the directory of a case, to read its inputs."""
        return self.root / case

    def check(self, case: str, outputs: Mapping[str, str], inputs: Collection[str] = ()) -> None:
        """Compare a case's outputs with its directory: the same names and the same bytes."""
        directory = self.path(case)
        present = {path.name for path in directory.iterdir()} - set(inputs) if directory.is_dir() else set()
        if self.update:
            directory.mkdir(parents=True, exist_ok=True)
            for name in present - set(outputs):
                (directory / name).unlink()
            for name, text in outputs.items():
                (directory / name).write_bytes(text.encode())
            return
        assert present == set(outputs), f"{directory}: run pytest --update-goldens and read the diff"
        for name, text in outputs.items():
            assert (directory / name).read_bytes().decode() == text, f"{directory / name} differs"

    def cases(self, area: str, names: Collection[str]) -> None:
        """Compare the directories of an area with the names of its cases."""
        present = {path.name for path in self.path(area).iterdir()} if self.path(area).is_dir() else set()
        if self.update:
            for stale in present - set(names):
                shutil.rmtree(self.path(area) / stale)
            return
        assert present == set(names), f"{self.path(area)}: run pytest --update-goldens and read the diff"


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
def golden(request: pytest.FixtureRequest) -> Golden:
    """Give access to the golden files; see `Golden`."""
    return Golden(GOLDENS, bool(request.config.getoption("--update-goldens")))
