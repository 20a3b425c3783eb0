"""Whose addresses pools name, on a host with an interface: all commands say the same, and what serves is the host's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.host import DEVICE, PYTHON, Project, project

pytestmark = pytest.mark.slow
BIND = "import socket, sys; socket.socket().bind((sys.argv[1], 0))"
OWN = "192.0.2.2"


@pytest.fixture
def lan() -> Iterator[Project]:
    """Return a project on a host whose interface d0 has 192.0.2.2/24, and one Service."""
    with project() as made:
        made.space.shell(f"{DEVICE.format(device='d0')} && ip address add {OWN}/24 dev d0")
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 8000}]},
        }
        made.write("web.yaml", service)
        yield made


def answers(lan: Project, *addresses: str) -> tuple[dict[str, Any], str, str]:
    """Deploy with a pool of these addresses; give the Service's row, what `preview` says, and what `doctor` says."""
    lan.configure(pools=[{"name": "a", "addresses": list(addresses)}])
    preview = lan.locallb("preview")
    assert preview.code == 0, preview.err
    lan.up()
    return lan.status()["web"], preview.out + preview.err, lan.locallb("doctor").out


def assert_own(lan: Project, row: dict[str, Any], preview: str) -> None:
    """Check that `up` gave what `preview` said, and that it can be bound by who doesn't set IP_FREEBIND."""
    (address,) = row["addresses"]
    assert address in preview
    lan.space.shell(f"{PYTHON} -c '{BIND}' {address}")


@pytest.mark.parametrize("addresses", ["8.0.0.0/8", "8.8.8.8", "192.0.2.128/28"])
def test_addresses_outside_this_host_serve_no_service(lan: Project, addresses: str) -> None:
    """Envoy could bind it all the same."""
    row, preview, doctor = answers(lan, addresses)
    assert (row["state"], row["reason"]) == ("rejected", "NotOnHost")
    assert "NotOnHost" in preview
    assert f"{addresses if '/' in addresses else addresses + '/32'} of pool a isn't this host's" in doctor


@pytest.mark.parametrize(
    ("addresses", "terms"),
    [
        ("0.0.0.0/0", "pool a: 0.0.0.0/0 is more than one host can have"),
        ("126.0.0.0/7", "126.0.0.0/8 of pool a isn't this host's"),
    ],
)
def test_oversized_pool_serves_only_addresses_of_this_host(lan: Project, addresses: str, terms: str) -> None:
    """The same address for `preview` and `up`, and each reports what is left out, as the doctor does."""
    row, preview, doctor = answers(lan, addresses)
    assert_own(lan, row, preview)
    assert terms in " ".join(preview.split())
    assert terms in doctor


def test_an_interfaces_own_address_never_comes_out_of_a_range(lan: Project) -> None:
    """Listed by itself it serves, with a warning: the network reaches it."""
    row, preview, doctor = answers(lan, "192.0.2.0/28")
    assert (row["state"], row["reason"]) == ("rejected", "NotOnHost")
    assert f"own address {OWN} on d0" in doctor
    setup = lan.locallb("host", "setup")
    assert f"own address {OWN} on d0" in setup.err
    row, preview, doctor = answers(lan, OWN)
    assert row["addresses"] == [OWN]
    assert_own(lan, row, preview)
    warned = f"pool a: {OWN} is this host's own address on d0"
    assert all(warned in " ".join(stated.split()) for stated in (preview, doctor, lan.locallb("host", "setup").err))


def test_a_public_prefix_is_reported_and_its_route_is_offered_by_name(lan: Project) -> None:
    """By `host setup` as by the others."""
    lan.configure(pools=[{"name": "a", "addresses": ["8.8.8.0/29"]}])
    setup = lan.locallb("host", "setup")
    assert setup.code == 1
    assert "ip route add local 8.8.8.0/29" in setup.out
    assert "8.8.8.0/29 is public" in setup.err
    assert "`--allow-network 8.8.8.0/29`" in setup.err
    setup = lan.locallb("host", "setup", "--allow-network", "8.8.8.0/29")
    assert setup.code == 0
    assert "8.8.8.0/29 is public" in setup.err


def test_a_table_for_marked_packets_proves_nothing(lan: Project) -> None:
    """As transparent proxies have it: `local 0.0.0.0/0` in a table of their own."""
    lan.space.shell("ip route add local 0.0.0.0/0 dev lo table 100")
    row, _, _ = answers(lan, "8.8.8.0/29")
    assert (row["state"], row["reason"]) == ("rejected", "NotOnHost")
