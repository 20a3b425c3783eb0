"""Files on their way to an Envoy: what is waited for, how often it is asked, and what a refusal does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from locallb.envoy import push
from locallb.envoy.admin import Subscription, Subscriptions
from locallb.envoy.document import settling_time
from locallb.envoy.rollout import CLUSTERS, LISTENERS, Write
from locallb.storage.files import PRIVATE

TABLES = [f"rds-{number:012x}.json" for number in range(3)]


class SlowEnvoy:
    """Takes what lies there at a later question, and refuses what says so."""

    def __init__(self, directory: Path, later: int = 0) -> None:
        self.directory, self.later = directory, later
        self.requested: list[str] = []
        self.at_first: frozenset[str] | None = None
        """The files that lay there when it was asked for routes first."""
        self.not_ready: list[frozenset[str]] = []
        """Its clusters that aren't, at each of the next questions."""
        self._remaining = dict[str, int]()
        self._runs = dict[str, str]()
        self._refused = dict[str, set[str]]()

    def attempts(self) -> Subscriptions:
        """Return how often it has refused listeners and clusters."""
        self.requested.append("attempts")
        self._inspect()
        lds, cds = (len(self._refused.get(name, ())) for name in (LISTENERS, CLUSTERS))
        return Subscriptions(Subscription(rejected=lds), Subscription(rejected=cds))

    def active(self) -> Subscriptions:
        """Return the versions of listeners and clusters."""
        self.requested.append("active")
        self._inspect()
        return Subscriptions(*(Subscription(self._runs.get(name, "")) for name in (LISTENERS, CLUSTERS)))

    def routes(self) -> frozenset[str]:
        self.requested.append("routes")
        self.at_first = self.at_first or frozenset(path.name for path in self.directory.glob("rds-*.json"))
        self._inspect()
        return frozenset(self._runs.values())

    def warming(self) -> frozenset[str]:
        """Return the names of clusters that aren't ready."""
        self.requested.append("warming")
        return self.not_ready.pop(0) if self.not_ready else frozenset()

    def _inspect(self) -> None:
        for path in self.directory.glob("*.json"):
            version = json.loads(path.read_text())["version"]
            if version.startswith("wrong"):
                self._refused.setdefault(path.name, set()).add(version)
            elif self._remaining.setdefault(version, self.later):
                self._remaining[version] -= 1
            else:
                self._runs[path.name] = version


def put(name: str, version: str) -> Write:
    return Write(name, json.dumps({"version": version}), version)


@pytest.fixture
def envoy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowEnvoy:
    made = SlowEnvoy(tmp_path)
    monkeypatch.setattr(push, "EnvoyAdmin", lambda _: made)
    monkeypatch.setattr(push, "settling_time", lambda _: 30.0)
    return made


class Clock:
    """A time that passes only where it is slept."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def series(envoy: SlowEnvoy) -> push.Series:
    """Return a series that would wait for long."""
    return push.Series(envoy.directory, PRIVATE)


@pytest.mark.parametrize("size", [0, 100_000, 500_000])
def test_an_envoy_gets_more_time_for_larger_files(envoy: SlowEnvoy, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of listeners are read for seconds; one that never takes them is waited for no longer than that."""
    clock = Clock()
    monkeypatch.setattr(push, "time", clock)
    monkeypatch.setattr(push, "settling_time", settling_time)
    envoy.later = 1_000_000
    series(envoy).put(Write(LISTENERS, json.dumps({"version": "l1", "resources": "x" * size}), "l1"))
    written = (envoy.directory / LISTENERS).stat().st_size
    assert settling_time(written) <= clock.now < settling_time(written) + 1
    assert settling_time(written) >= settling_time(0) + size * 12e-6


@pytest.mark.parametrize("later", [0, 1, 5])
def test_routes_of_all_listeners_are_written_before_the_first_is_waited_for(envoy: SlowEnvoy, later: int) -> None:
    """And all are taken before anything else goes on."""
    envoy.later = later
    series(envoy).put_routes([put(name, f"v{name}") for name in TABLES])
    assert envoy.at_first == frozenset(TABLES)
    assert {f"v{name}" for name in TABLES} <= envoy.routes()
    assert envoy.requested == ["routes"] * (later + 2)


def test_routes_of_new_listeners_are_not_waited_for(envoy: SlowEnvoy) -> None:
    """Their listener comes afterwards."""
    series(envoy).put_routes([Write(TABLES[0], json.dumps({"version": "v"}))])
    assert envoy.requested == []


def test_accepted_push_asks_for_rejections_once(envoy: SlowEnvoy) -> None:
    """Each question is a connection, and Envoy has other things to do."""
    files = series(envoy)
    for name, version in ((CLUSTERS, "c1"), (LISTENERS, "l1"), (CLUSTERS, "c2")):
        files.put(put(name, version))
        assert version in {envoy.active().lds.version, envoy.active().cds.version}
    assert envoy.requested.count("attempts") == 1


def test_earlier_rejection_is_not_taken_for_one_of_the_next_file(envoy: SlowEnvoy) -> None:
    """A refused file isn't waited for; one that comes after it is, however long it takes."""
    files = series(envoy)
    files.put(put(CLUSTERS, "wrong 1"))
    envoy.later = 9
    files.put(put(CLUSTERS, "c2"))
    assert envoy.active().cds.version == "c2"


def test_new_clusters_are_ready_before_anything_leads_to_them(envoy: SlowEnvoy) -> None:
    """Others that are changed are waited for by nobody: what was there serves meanwhile."""
    envoy.not_ready = [frozenset("ab"), frozenset("a"), frozenset("b")]
    files = series(envoy)
    files.put(replace(put(CLUSTERS, "c1"), clusters=frozenset("a")))
    assert envoy.not_ready == []
    assert envoy.requested == ["attempts", "active", *["warming"] * 3]


def test_a_change_without_new_clusters_does_not_ask_whether_all_are_ready(envoy: SlowEnvoy) -> None:
    """Nor does one that Envoy refuses."""
    files = series(envoy)
    files.put(put(CLUSTERS, "c1"))
    files.put(replace(put(CLUSTERS, "wrong"), clusters=frozenset("a")))
    assert "warming" not in envoy.requested
