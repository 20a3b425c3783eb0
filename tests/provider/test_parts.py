"""ServiceConfig: the parts of a proxy that several Services share, put in and taken out under a real Envoy."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from msgspec.structs import replace

from locallb.envoy import render_empty, render_part
from locallb.envoy.admin import EnvoyAdmin
from locallb.envoy.binary import installed
from locallb.envoy.rollout import fingerprint
from locallb.model.identities import Owner, Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Backend, Listener, Part, Proxy, Upstream
from locallb.model.texts import owner_fields, part_id, proxy_id, proxy_owner
from locallb.provider import ProviderError
from locallb.runtimes import handover, processes
from locallb.runtimes.processes import Process
from locallb.storage import paths
from locallb.storage.proxy_directories import Proxies
from tests.support.provider import Driver, Wanted, accepts, block, echo, exchanges, owner
from tests.support.waiting import becomes

pytestmark = pytest.mark.envoy


@dataclass(frozen=True)
class Shared:
    """A proxy of the stack, and the inputs of what belongs to it."""

    owner: Owner

    @property
    def id(self) -> ProxyId:
        return proxy_id(self.owner.home, ProxyName("shared-1"))

    @property
    def config(self) -> dict[str, Any]:
        return {
            "proxy": self.id,
            "name": "shared-1",
            "owner": dict(owner_fields(proxy_owner(self.owner.home, ProxyName("shared-1")))),
            "files": dict(render_empty(Proxy(ProxyName("shared-1"), self.id, Discovery.STATIC)).files),
            "versions": {"lds": "", "cds": ""},
            "shared": False,
        }

    @property
    def process(self) -> dict[str, Any]:
        its = {"proxy": self.id, "owner": self.config["owner"], "version": installed().version}
        return {**its, "bootstrap": fingerprint(self.config["files"])}

    def part(self, name: str, address: str, backend: int, *ports: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the inputs of a Service's ServiceConfig and of its Reachable."""
        mine = replace(self.owner, service=self.owner.service._replace(name=name))
        identity, at = part_id(mine.service), ip_address(address)
        backends = (Backend.at(ip_address("127.0.0.1"), backend),)
        upstreams = tuple(
            Upstream(UpstreamName(f"{identity}-tcp-{port}-ipv4"), Protocol.TCP, backends) for port in ports
        )
        listeners = tuple(
            Listener(at, port, Protocol.TCP, UpstreamName(f"{identity}-tcp-{port}-ipv4")) for port in ports
        )
        made = render_part(Part(identity, self.id, listeners, upstreams))
        config = {
            "proxy": self.id,
            "part": identity,
            "owner": dict(owner_fields(mine)),
            "listeners": dict(made.listeners),
            "clusters": dict(made.clusters),
        }
        proof = {
            "proxy": self.id,
            "part": identity,
            "process": "any",
            "listeners": [listener.name for listener in listeners],
            "versions": {"lds": made.listeners_version, "cds": made.clusters_version},
            "probes": [listener.place for listener in listeners],
            "published": False,
        }
        return config, proof


@pytest.fixture
def shared(driver: Driver, root: Path) -> Shared:
    """Return a shared proxy that runs and serves nobody."""
    made = Shared(owner(root))
    driver.create("ProxyConfig", made.config)
    driver.create("EnvoyProcess", made.process)
    return made


def test_a_part_serves_is_read_back_and_leaves_no_listener(driver: Driver, shared: Shared) -> None:
    """From nothing to a proof that holds; once it is deleted, clients are refused and its neighbour serves."""
    net = block()
    first, second = f"{net}.11", f"{net}.12"
    with echo() as backend:
        one, proof = shared.part("one", first, backend, 8080)
        two, _ = shared.part("two", second, backend, 8080)
        state = driver.create("ServiceConfig", one)
        other = driver.create("ServiceConfig", two)
        proven = driver.create("Reachable", proof)
        assert driver.read("ServiceConfig", state) == state
        assert driver.read("Reachable", proven) == proven
        driver.delete("ServiceConfig", state)
        becomes(lambda: not accepts(first, 8080))
        assert driver.read("Reachable", proven) is None
        assert accepts(second, 8080)
        assert driver.read("ServiceConfig", other) == other


def test_an_update_closes_what_is_gone_and_cuts_no_stream_of_the_rest(driver: Driver, shared: Shared) -> None:
    """A port that goes is closed when the update returns; a stream through another port of the Service goes on."""
    address = f"{block()}.13"
    with echo() as backend:
        both, _ = shared.part("one", address, backend, 8080, 8081)
        state = driver.create("ServiceConfig", both)
        with socket.create_connection((address, 8080), timeout=5) as stream:
            assert exchanges(stream, b"before")
            fewer, proof = shared.part("one", address, backend, 8080)
            driver.update("ServiceConfig", state, fewer)
            becomes(lambda: not accepts(address, 8081))
            assert driver.create("Reachable", proof)["ports"][0]["state"] == "serving"
            assert exchanges(stream, b"after")


def test_a_proxy_that_ends_lets_the_streams_of_a_part_that_went_end_first(
    driver: Driver, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part is gone and its port closed, and its stream has its moment all the same."""
    monkeypatch.setattr(handover, "LINGER", 30.0)
    address = f"{block()}.21"
    with echo() as backend, ThreadPoolExecutor(1) as thread:
        part, _ = shared.part("one", address, backend, 8080)
        state = driver.create("ServiceConfig", part)
        process = driver.create("EnvoyProcess", shared.process)
        with socket.create_connection((address, 8080), timeout=5) as stream:
            assert exchanges(stream, b"before")
            driver.delete("ServiceConfig", state)
            ending = thread.submit(driver.delete, "EnvoyProcess", process)
            for _ in range(20):
                assert exchanges(stream, b"meanwhile")
                time.sleep(0.05)
            assert not ending.done()
        ending.result()
    assert not accepts(address, 8080)


def test_parts_that_come_at_once_are_all_there(driver: Driver, shared: Shared) -> None:
    """Thirty Services from thirty threads: every part is in the files, every one proves itself, then all go."""
    net = block()
    with echo() as backend, ThreadPoolExecutor(30) as threads:
        addresses = [f"{net}.{100 + number}" for number in range(30)]
        parts = [shared.part(f"s{at[-2:]}", at, backend, 8080) for at in addresses]
        states = list(threads.map(lambda part: driver.create("ServiceConfig", part[0]), parts))
        proofs = list(threads.map(lambda part: driver.create("Reachable", part[1]), parts))
        assert all(driver.read("ServiceConfig", state) == state for state in states)
        assert all(driver.read("Reachable", proof) == proof for proof in proofs)
        assert all(accepts(address, 8080) for address in addresses)
        list(threads.map(lambda state: driver.delete("ServiceConfig", state), states))
        assert not any(accepts(address, 8080) for address in addresses)


def test_a_port_that_is_taken_fails_its_own_service_only(driver: Driver, shared: Shared) -> None:
    """The Service says who has its port; its neighbour, told later, proves itself all the same."""
    claimed, free = f"{block()}.14", f"{block()}.15"
    with echo() as backend, socket.create_server((claimed, 8080)):
        bad, proof = shared.part("bad", claimed, backend, 8080)
        driver.create("ServiceConfig", bad)
        with pytest.raises(ProviderError, match=rf"{claimed}:8080/TCP isn't served: the port is in use by"):
            driver.create("Reachable", proof)
        good, fine = shared.part("good", free, backend, 8080)
        driver.create("ServiceConfig", good)
        assert driver.create("Reachable", fine)
    driver.create("Reachable", proof)
    assert accepts(claimed, 8080)


@pytest.mark.parametrize("damage", ["edited", "emptied", "binary"])
def test_changed_proxy_fragment_is_detected_and_restored(driver: Driver, shared: Shared, damage: str) -> None:
    """A refresh shows the part as it is, the diff names it, the update restores it."""
    part, _ = shared.part("one", f"{block()}.16", 9, 8080)
    state = driver.create("ServiceConfig", part)
    path = Proxies(paths.proxies_root()).path(ProxyId(shared.id)) / "lds.json"
    texts = {"edited": path.read_bytes().replace(b"8080", b"8081"), "emptied": b"{}", "binary": b"\xff\x00"}
    path.write_bytes(texts[damage])
    observed = driver.read("ServiceConfig", state)
    assert observed is not None
    assert driver.diff("ServiceConfig", observed, part).diffs == ["listeners"]
    assert driver.update("ServiceConfig", observed, part) == state
    assert driver.read("ServiceConfig", state) == state


def test_a_proxy_that_lost_its_files_gets_them_back(driver: Driver, shared: Shared) -> None:
    """The proxy's own configuration shows as changed where a file that parts need is missing."""
    path = Proxies(paths.proxies_root()).path(ProxyId(shared.id)) / "cds.json"
    state = {**shared.config, "directory": str(path.parent), "bootstrap": fingerprint(shared.config["files"])}
    assert driver.diff("ProxyConfig", driver.read("ProxyConfig", state) or {}, shared.config).changes is False
    path.unlink()
    observed = driver.read("ProxyConfig", state)
    assert observed is not None
    assert driver.diff("ProxyConfig", observed, shared.config).diffs == ["files"]
    driver.update("ProxyConfig", observed, shared.config)
    assert path.exists()


def test_an_envoy_that_hangs_is_stopped_before_its_addresses_go(driver: Driver, shared: Shared) -> None:
    """It may still listen, so the deletion of a part ends it; the next one starts with all other parts."""
    net = block()
    removed, remains = f"{net}.17", f"{net}.18"
    with echo() as backend, ExitStack() as stack:
        one, _ = shared.part("one", removed, backend, 8080)
        two, proof = shared.part("two", remains, backend, 8080)
        state = driver.create("ServiceConfig", one)
        driver.create("ServiceConfig", two)
        outputs = driver.create("EnvoyProcess", shared.process)
        process = Process(int(outputs["pid"]), str(outputs["started"]))
        os.kill(process.pid, signal.SIGSTOP)
        stack.callback(_go_on, process.pid)
        driver.delete("ServiceConfig", state)
        assert not processes.is_alive(process)
        driver.create("EnvoyProcess", shared.process)
        driver.create("Reachable", proof)
        assert accepts(remains, 8080)
        assert not accepts(removed, 8080)


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def test_a_part_of_another_proxy_moves_old_before_new(driver: Driver, shared: Shared) -> None:
    """Two can't listen at one address: the successor is made after the old one is gone."""
    part, _ = shared.part("one", f"{block()}.19", 9, 8080)
    difference = driver.diff("ServiceConfig", driver.create("ServiceConfig", part), {**part, "proxy": "0" * 12})
    assert (difference.replaces, difference.delete_before_replace) == (["proxy"], True)


def test_a_part_without_its_proxy_is_refused(driver: Driver, shared: Shared, root: Path) -> None:
    """No directory, or another stack's: told in a sentence; a deletion finds nothing to do."""
    part, _ = shared.part("one", f"{block()}.20", 9, 8080)
    theirs = {**part, "owner": {**part["owner"], "stack": "other"}}
    for given in ({**part, "proxy": "0" * 12}, theirs):
        with pytest.raises(ProviderError, match=r"has no directory of .*: refresh and run up again"):
            driver.create("ServiceConfig", given)
        assert driver.read("ServiceConfig", given) is None
        driver.delete("ServiceConfig", given)
    assert [path for path, _ in driver.check("ServiceConfig", {**part, "part": "../x"})] == ["part"]
    assert root.exists()


def test_a_service_of_many_ports_is_proven(driver: Driver, shared: Shared) -> None:
    """Envoy refuses an expression that names more than a few listeners, so it is asked in several."""
    address, ports = f"{block()}.17", range(8080, 8104)
    with echo() as backend:
        part, proof = shared.part("wide", address, backend, *ports)
        driver.create("ServiceConfig", part)
        proven = driver.create("Reachable", proof)
        assert [port["state"] for port in proven["ports"]] == ["serving"] * len(ports)
        assert driver.read("Reachable", proven) == proven


def test_looks_of_the_same_moment_are_one(driver: Driver, shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """What thirty threads want to know while Envoy is asked is asked at once, and each sees what it would see alone."""
    net, requested = block(), []
    with ThreadPoolExecutor(30) as threads:
        parts = [shared.part(f"s{number}", f"{net}.{100 + number}", 9, 8080) for number in range(30)]
        list(threads.map(lambda part: driver.create("ServiceConfig", part[0]), parts))
        proofs = [driver.create("Reachable", proof) for _, proof in parts]
        alone = [driver.read("Reachable", proof) for proof in proofs]
        entered, ask = Barrier(30), EnvoyAdmin._ask

        def slowly(admin: EnvoyAdmin, method: str, path: str, accept: tuple[int, ...] = (200,)) -> str:
            requested.append(path)
            time.sleep(0.1)
            return ask(admin, method, path, accept)

        monkeypatch.setattr(EnvoyAdmin, "_ask", slowly)

        def read(proof: dict[str, Any]) -> dict[str, Any] | None:
            entered.wait()
            return driver.read("Reachable", proof)

        assert list(threads.map(read, proofs)) == alone == proofs
    assert len([path for path in requested if "config_dump" in path]) < 30


def test_spare_configured_by_an_interrupted_run_is_reset(driver: Driver, shared: Shared) -> None:
    """Files say what a Gateway was served, the state that it waits: listeners of nobody go, those of parts stay."""
    net = block()
    whole = Wanted(shared.owner, f"{net}.21", {8080: 1})
    state = {**shared.config, "directory": str(Proxies(paths.proxies_root()).path(shared.id))}
    state["bootstrap"] = fingerprint(shared.config["files"])
    with echo() as backend:
        files = {**dataclasses.replace(whole, ports={8080: backend}).config["files"], **shared.config["files"]}
        claimed = driver.update("ProxyConfig", state, {**shared.config, "files": files, "serves": "c/gateways/n/web"})
        assert claimed["serves"] == "c/gateways/n/web"
        assert accepts(f"{net}.21", 8080)
        assert driver.read("ProxyConfig", claimed) == claimed
        one, _ = shared.part("one", f"{net}.22", backend, 8080)
        driver.create("ServiceConfig", one)
        observed = driver.read("ProxyConfig", state)
        assert observed is not None
        assert observed["files"] == {}
        waiting = driver.update("ProxyConfig", observed, shared.config)
        becomes(lambda: not accepts(f"{net}.21", 8080))
        assert accepts(f"{net}.22", 8080)
    assert driver.read("ProxyConfig", waiting) == waiting
    assert "serves" not in waiting
    assert not list(Path(waiting["directory"]).glob("eds-*"))
