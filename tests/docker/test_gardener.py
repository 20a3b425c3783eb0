"""Gardener's layout in namespaces: both families published, its names and labels, 32 addresses, a 33rd that waits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import pytest

from tests.docker.daemon import GATEWAYS, NODE_PORT, Hosted, gardeners, requested
from tests.support.containers import docker_only
from tests.support.manifests import port, service

pytestmark = [pytest.mark.docker, pytest.mark.envoy, docker_only]


@pytest.fixture
def host(image: str) -> Iterator[Hosted]:
    del image  # there is a daemon, or there is none to be had
    with gardeners() as made:
        yield made


def test_both_families_and_protocols_are_published_and_settle(host: Hosted) -> None:
    """TCP and UDP over IPv4 and IPv6; internal addresses end as the external ones do; Gardener's names and labels."""
    ports = port(80, NODE_PORT), port(80, NODE_PORT, "UDP")
    host.project.write(
        "both.yaml", service("both", *ports, uid="4b3c", ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="RequireDualStack")
    )
    host.project.up()
    (row,) = host.project.status().values()
    assert (row["state"], row["reason"]) == ("rejected", "NotOnHost")
    host.project.space.shell("sysctl -qw net.ipv6.ip_nonlocal_bind=1")
    host.project.up()
    (row,) = host.project.status().values()
    assert row["state"] == "serving"
    four, six = row["addresses"]
    places = [f"{protocol}@{address}@80" for protocol in ("TCP", "UDP") for address in (four, six)]
    assert requested(host.project.space, *places) == [
        f"{p} at {gateway}" for p in ("TCP", "UDP") for gateway in GATEWAYS
    ]
    before = host.identities()
    name = f"gardener-lb-{hashlib.sha256(b'4b3c').hexdigest()[:8]}"
    assert list(before) == [name]
    (observed,) = json.loads(host.daemon.docker("inspect", name).out)
    assert {key: observed["Config"]["Labels"][key] for key in LABELS} == LABELS
    network = observed["NetworkSettings"]["Networks"]["kind"]
    last = int(four.rpartition(".")[2])
    assert network["IPAddress"] == f"172.18.0.{last}"
    assert network["GlobalIPv6Address"] == f"fd00:10::{six.rpartition(':')[2]}"
    for terms in (("up",), ("refresh",), ("up",)):
        done = host.project.locallb(*terms, "--yes", "--expect-no-changes")
        assert done.code == 0, done.out + done.err
    assert host.identities() == before


LABELS = {
    "gardener.cloud/role": "loadbalancer",
    "gardener.cloud/service": "n/both",
    "kubernetes.io/cluster": "c",
}


@pytest.mark.slow
def test_all_addresses_are_used_and_the_next_service_waits_until_one_is_freed(host: Hosted) -> None:
    """32 Services at 32 addresses, .255 among them; the 33rd is told why, and gets the one that is freed."""
    services = {f"s{n:02}": service(f"s{n:02}", port(80, NODE_PORT), uid=str(n)) for n in range(33)}
    host.project.write("services.yaml", *list(services.values())[:32])
    host.project.up()
    rows = host.project.status()
    assert {row["state"] for row in rows.values()} == {"serving"}
    at = {name: row["addresses"][0] for name, row in rows.items()}
    assert sorted(int(address.rpartition(".")[2]) for address in at.values()) == list(range(224, 256))
    assert (
        requested(host.project.space, *(f"TCP@{address}@80" for address in at.values())) == ["TCP at 172.18.0.1"] * 32
    )
    host.project.write("services.yaml", *services.values())
    host.project.up()
    waiting = host.project.status()["s32"]
    assert (waiting["state"], waiting["reason"]) == ("rejected", "PoolExhausted")
    assert "add addresses to local-lb:pools or delete a Service" in waiting["message"]
    before = host.identities()
    del services["s07"]
    host.project.write("services.yaml", *services.values())
    host.project.up()  # the address is released at its end
    host.project.up()
    rows = host.project.status()
    assert (rows["s32"]["addresses"], rows["s32"]["state"]) == ([at["s07"]], "serving")
    assert {name: rows[name]["addresses"][0] for name in at if name != "s07"} == {
        name: address for name, address in at.items() if name != "s07"
    }
    assert len(before.items() & host.identities().items()) == 31
