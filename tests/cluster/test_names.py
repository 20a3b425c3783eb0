"""Names of Services of a real cluster: there with the address, gone with the Service, refused by an event."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.backends import Backend
from tests.support.cluster_services import address
from tests.support.control_plane import ControlPlane, Objects
from tests.support.dns_questions import NXDOMAIN, addresses, requested
from tests.support.manifests import port, service
from tests.support.stages import Stage
from tests.support.watching import answers, eventually, watching

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]
HOSTNAME = "external-dns.alpha.kubernetes.io/hostname"


def test_a_name_follows_its_service(
    plane: ControlPlane, cluster: Objects, play: Stage, backend: Callable[..., Backend]
) -> None:
    """Annotated, contended, freed by the older one."""
    server = play.at(200), 5300
    zones = [{"zone": "test", "embedded": f"{server[0]}:{server[1]}"}]
    play.configure(sources=[plane.source], dns={"zones": zones, "inStatus": True})
    with watching(play) as watch:
        document = cluster.service(service("web", port(8080, 0), annotations={HOSTNAME: "shop.test"}))
        backend("web", port=document["spec"]["ports"][0]["nodePort"])
        eventually(lambda: addresses(server, "shop.test") == [address(cluster, "web")], watch)
        eventually(lambda: answers(addresses(server, "web.n.real.test")[0], 8080, "web"), watch)
        stated = (cluster.read("web") or {})["status"]["loadBalancer"]["ingress"]
        assert [(entry["ip"], entry["hostname"], entry["ipMode"]) for entry in stated] == [
            (address(cluster, "web"), "shop.test", "Proxy")
        ]
        cluster.service(service("z-late", port(8080, 0), annotations={HOSTNAME: "shop.test"}))
        reported = "real/n/z-late: the name shop.test is that of real/n/web, which is older; choose another one"
        eventually(lambda: reported in [note for _, _, note in cluster.events("z-late")], watch)
        assert addresses(server, "shop.test") == [address(cluster, "web")]
        cluster.delete("web")
        eventually(lambda: addresses(server, "shop.test") == [address(cluster, "z-late")], watch)
        cluster.change("z-late", {"metadata": {"annotations": {HOSTNAME: None}}})
        eventually(lambda: requested(server, "shop.test")[0] == NXDOMAIN, watch)
