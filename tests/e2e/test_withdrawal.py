"""A proxy that can't be brought back, under the loop: what its Services are told meanwhile, and once it is back.

The engine, the provider and Envoy are real; the API of the cluster is played.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from locallb.cli.session import Session
from locallb.engine.state.project import load_config
from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.live_object import RECENT
from locallb.kubernetes.object_parsing import parse_objects
from locallb.kubernetes.status import FINALIZER
from locallb.model.identities import ClusterName, ContextName, ObjectKey
from locallb.model.snapshot import Access, Snapshot
from locallb.observe import observe
from locallb.sources.configuration import stack_settings
from locallb.sources.held import HeldByState
from locallb.sources.snapshot import SnapshotResult, read_host
from locallb.sources.snapshot_cache import SnapshotCache
from locallb.sources.workspace import Workspace
from locallb.watch import failures as outages
from locallb.watch import hangs
from locallb.watch.events import Converged, LoopEvent
from locallb.watch.loop import Loop
from tests.support.backends import Backend
from tests.support.manifests import node, port, service
from tests.support.stages import Stage
from tests.support.watching import answers, eventually

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

Backends = Callable[..., Backend]
CLUSTER = ClusterName("c")
ACCESS = Access("/kubeconfig", ContextName("c"))
Object = dict[str, Any]


@dataclass
class Api:
    """An API server with Services, which keeps what is patched."""

    services: dict[str, Object] = field(default_factory=dict)
    writes: int = 0
    reasons: list[str] = field(default_factory=list)
    """What our conditions said, one after the other."""

    def add(self, document: Object) -> Object:
        document["metadata"] |= {"resourceVersion": "1"}
        self.services[document["metadata"]["name"]] = document
        return document

    def at(self, _access: Access) -> Api:
        return self

    def service(self, _namespace: str, name: str, *_kind: object) -> Object | None:
        return self.services.get(name)

    def patch_status(self, _namespace: str, name: str, patch: Mapping[str, Any], *_kind: object) -> Object:
        self.writes += 1
        before = self.services[name]
        version = str(int(before["metadata"]["resourceVersion"]) + 1)
        metadata = {**before["metadata"], **patch["metadata"], "resourceVersion": version}
        self.services[name] = {**before, **patch, "metadata": metadata}
        self.reasons += [reported["reason"] for reported in patch.get("status", {}).get("conditions", ())]
        return self.services[name]

    def create_event(self, _namespace: str, _body: object) -> None:
        """Take an event."""

    def addresses(self, name: str) -> list[str]:
        balancer = self.services[name].get("status", {}).get("loadBalancer", {})
        return [entry["ip"] for entry in balancer.get("ingress") or ()]

    def serving(self, name: str) -> tuple[str, str]:
        """Return status and reason of our condition."""
        (reported,) = self.services[name]["status"]["conditions"]
        return reported["status"], reported["reason"]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """Play an API server for the provider."""
    made = Api()
    RECENT.forget(ACCESS)  # what an earlier test's API said
    monkeypatch.setattr(live_object, "_clusters", lambda: made)
    monkeypatch.setattr(outages, "GRACE", 0.5)
    return made


@pytest.fixture
def run(play: Stage, api: Api) -> Iterator[Callable[[], Loop]]:
    """Return what runs the loop in a thread, on a world that has the API's Services, until all is as planned."""
    running: list[tuple[Loop, threading.Thread]] = []

    def start() -> Loop:
        session = Session.open(play.root, "dev")
        settings = stack_settings(load_config(session.project, "dev"))
        read = parse_objects(CLUSTER, [*api.services.values(), node()])
        access = {CLUSTER: ACCESS}
        host = read_host(session.home, settings, HeldByState())
        snapshot = Snapshot(session.home, read.services, nodes=read.nodes, host=host, access=access)

        def reading(_changes: object) -> SnapshotResult:
            stated = parse_objects(CLUSTER, api.services.values()).observed_statuses
            return SnapshotResult(snapshot, observed_statuses=dict(stated))

        world = SimpleNamespace(
            read=reading,
            stale=dict,
            retry=dict,
            unready=lambda: False,
            updated=lambda: None,
            invalidate_host_facts=lambda: None,
            stop=lambda: None,
        )
        reported: list[LoopEvent] = []
        engine = session.engine(lambda _event: None)
        stack = session.project.stack_file("dev")
        loop = Loop(session.home, engine, lambda: settings, stack, reported.append, observe=observe)
        loop._planner._workspace = Workspace(session.home, settings, cache=cast("SnapshotCache", world))
        loop._planner.triggers.follow(settings)
        thread = threading.Thread(target=loop.run, daemon=True)
        running.append((loop, thread))
        thread.start()
        eventually(lambda: any(isinstance(event, Converged) for event in reported))
        return loop

    yield start
    for loop, thread in running:
        loop.stop()
        thread.join(30)


def block(play: Stage) -> list[Path]:
    """Put a directory in the place of every file that an Envoy starts from, and end all of them."""
    blocked = list(play.state_home.glob("proxies/*/bootstrap.json"))
    for path in blocked:
        path.unlink()
        path.mkdir()
    for pid in set(play.pids().values()):
        os.kill(pid, signal.SIGKILL)
    return blocked


@pytest.mark.parametrize("sharing", ["per-service", "shared"])
def test_services_of_a_dead_proxy_lose_their_status_address_until_it_is_back(
    play: Stage, api: Api, run: Callable[[], Loop], backend: Backends, sharing: str
) -> None:
    """The condition says why; the claim, the finalizer and the address stay."""
    two_services(play, api, backend, sharing)
    run()
    before = {name: api.addresses(name) for name in api.services}
    claims = sorted(path.name for path in (play.state_home / "ledger").iterdir())
    blocked = block(play)
    eventually(lambda: all(api.serving(name) == ("False", "ProxyDown") for name in api.services))
    assert not any(map(api.addresses, api.services))
    assert sorted(path.name for path in (play.state_home / "ledger").iterdir()) == claims
    assert all(FINALIZER in service["metadata"]["finalizers"] for service in api.services.values())
    for path in blocked:
        path.rmdir()
    eventually(lambda: {name: api.addresses(name) for name in api.services} == before)
    assert all(api.serving(name) == ("True", "Serves") for name in api.services)
    assert all(answers(at, 8080, "web") for (at,) in before.values())


@pytest.mark.parametrize("sharing", ["per-service", "shared"])
def test_while_it_cannot_be_brought_back_nothing_is_written_again(
    play: Stage, api: Api, run: Callable[[], Loop], backend: Backends, sharing: str
) -> None:
    """Every try fails for the same reason, which the status says already; nobody else is said to change that back."""
    play.configure(proxies={"mode": sharing})
    web = backend("web")
    api.add(service("web", port(8080, web.port), uid="u-web"))
    loop = run()
    block(play)
    eventually(lambda: api.serving("web") == ("False", "ProxyDown"))
    writes, away = api.writes, loop._failures.outages.since
    failures = max(retry.backoff.failures for retry in loop._schedule.retries.values())
    eventually(lambda: max(retry.backoff.failures for retry in loop._schedule.retries.values()) >= failures + 3)
    assert api.writes == writes
    assert loop._failures.outages.since == away
    assert not list(loop._failures.disputes.notices())
    assert not loop._failures.disputes.repairs


def test_a_repair_that_takes_a_moment_is_not_reported(
    play: Stage, api: Api, run: Callable[[], Loop], backend: Backends
) -> None:
    """A killed proxy that starts again: no write at all."""
    web = backend("web")
    api.add(service("web", port(8080, web.port), uid="u-web"))
    run()
    (at,), writes, before = api.addresses("web"), api.writes, play.pids()
    os.kill(before["n/web"], signal.SIGKILL)
    eventually(lambda: play.pids() != before and answers(at, 8080, "web"))
    assert api.writes == writes


def two_services(play: Stage, api: Api, backend: Backends, sharing: str) -> None:
    """Have two Services of one backend, each with a proxy of its own or both with one of the stack's."""
    play.configure(proxies={"mode": sharing})
    web = backend("web")
    for name in ("api", "web"):
        api.add(service(name, port(8080, web.port), uid=f"u-{name}"))


@contextmanager
def hanging(pid: int) -> Iterator[int]:
    """Have a process do nothing; gives a descriptor of it, which is readable once it has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
        yield descriptor
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)
        os.close(descriptor)


@pytest.mark.parametrize("sharing", ["per-service", "shared"])
def test_a_proxy_that_hangs_is_reported_and_replaced_at_its_addresses(
    play: Stage, api: Api, run: Callable[[], Loop], backend: Backends, sharing: str
) -> None:
    """The process that hung is gone; one that didn't goes on; the statuses are as before in the end."""
    two_services(play, api, backend, sharing)
    run()
    before, pids = {name: api.addresses(name) for name in api.services}, play.pids()
    victim = pids[max(pids)]
    others = {pid for pid in pids.values() if pid != victim}
    api.reasons.clear()
    with hanging(victim) as descriptor:
        eventually(lambda: select.select([descriptor], [], [], 0)[0])
        eventually(lambda: {name: api.addresses(name) for name in api.services} == before)
        eventually(lambda: all(api.serving(name) == ("True", "Serves") for name in api.services))
    assert "ProxyDown" in api.reasons
    assert all(answers(at, 8080, "web") for (at,) in before.values())
    assert others <= set(play.pids().values())
    assert len(set(play.pids().values())) == len(set(pids.values()))


def test_a_proxy_that_answers_again_before_it_is_replaced_is_not_ended(
    play: Stage, api: Api, run: Callable[[], Loop], backend: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that hung a moment ago would be; its status is taken back and given again."""
    monkeypatch.setattr(hangs, "replaced_after", lambda _hangs: 3600.0)
    web = backend("web")
    api.add(service("web", port(8080, web.port), uid="u-web"))
    loop = run()
    (at,), pids = api.addresses("web"), play.pids()
    with hanging(pids["n/web"]):
        eventually(lambda: api.serving("web") == ("False", "ProxyDown"))
        web_key = ObjectKey(CLUSTER, "n", "web")
        eventually(
            lambda: [(delay.party, delay.waiting) for delay in loop._delays] == [(f"proxy {web_key}", (web_key,))]
        )
    eventually(lambda: api.serving("web") == ("True", "Serves"))
    eventually(lambda: not loop._delays)
    assert play.pids() == pids
    assert answers(at, 8080, "web")
