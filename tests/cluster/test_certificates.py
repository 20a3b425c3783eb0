"""From `certificates: local` to a request by HTTPS on a real API, as docs/certificates.md has it, word for word."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import yaml
from lightkube import ApiError, Client

from tests.cluster.installed_crds import install, remove
from tests.support.client_kinds import NAMESPACE, SERVICE
from tests.support.cluster_gateways import BINDING, NAME, RIGHTS, ROLE, resource
from tests.support.control_plane import ControlPlane, Objects
from tests.support.environment import lent
from tests.support.gateway_clients import answering
from tests.support.pages import fences
from tests.support.stages import CHECKOUT, Stage
from tests.support.waiting import becomes
from tests.support.watching import eventually, watching

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]
PAGE = CHECKOUT / "docs/certificates.md"
EXAMPLE = CHECKOUT / "examples/gateway/manifests"
SHOP = "shop"


def blocks(start: str) -> list[str]:
    """Return the blocks of the page that begin so."""
    return [fence.text for fence in fences(PAGE) if fence.text.startswith(start)]


@pytest.fixture
def owner(plane: ControlPlane, cluster: Objects) -> Iterator[Client]:
    """Return the owner of a cluster with Gateway API's own CRDs, and a namespace for the page's objects."""
    del cluster
    with plane.client() as client:
        remove(client)
        client.create(ROLE.from_dict({"metadata": {"name": NAME}, "rules": RIGHTS}))
        subject = {"kind": "User", "name": "local-lb", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
        client.create(BINDING.from_dict({"metadata": {"name": NAME}, "roleRef": role, "subjects": [subject]}))
        with suppress(ApiError):  # an earlier test's: nothing here removes namespaces
            client.create(NAMESPACE.from_dict({"metadata": {"name": SHOP}}))
        yield client
        with suppress(ApiError):  # where the test came to none
            client.delete(SERVICE, "web", namespace=SHOP)
        client.delete(BINDING, NAME)
        client.delete(ROLE, NAME)
        remove(client)


def is_applied(owner: Client, document: dict[str, object]) -> bool:
    """Create an object; return whether its kind is served by now. Whatever else the API says is raised."""
    kind = resource(str(document["kind"])).from_dict(document)
    try:
        owner.create(kind, namespace=SHOP) if document["kind"] != "GatewayClass" else owner.create(kind)
    except ApiError as error:
        if error.status.code not in {404, 409}:
            raise
        return bool(error.status.code == 409)
    return True


@pytest.mark.parametrize("source", ["page", "example"])
def test_an_https_gateway_of_a_cluster_has_a_certificate_of_the_local_authority(
    plane: ControlPlane, owner: Client, play: Stage, source: str
) -> None:
    """The API takes the Gateway, `watch` serves it, and the page's own commands get an answer."""
    example = {one["kind"]: one for one in yaml.safe_load_all((EXAMPLE / "gateway.yaml").read_text())}
    (text,) = blocks("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n")
    documents = {**example, "Gateway": yaml.safe_load(text)} if source == "page" else example
    (settings,) = blocks("config:\n  local-lb:certificates: local")
    (commands,) = [block for block in blocks("locallb ca export") if "curl" in block]
    assert install(play, plane, "--yes").code == 0
    (made,) = yaml.safe_load_all((EXAMPLE / "service.yaml").read_text())
    made["spec"]["ports"][0].pop("nodePort")
    node_port = dict(owner.create(SERVICE.from_dict(made), namespace=SHOP))["spec"]["ports"][0]["nodePort"]
    key, value = next(iter(yaml.safe_load(settings)["config"].items()))
    play.configure(sources=[plane.source], **{str(key).removeprefix("local-lb:"): value})
    for document in documents.values():
        becomes(partial(is_applied, owner, document), f"{document['kind']} is taken")
    bin_directory = str(Path(sys.executable).parent)
    surroundings = {"XDG_DATA_HOME": str(play.root / "d"), "PATH": f"{bin_directory}:{os.environ['PATH']}"}
    with lent(surroundings), answering("web", port=node_port), watching(play) as watch:

        def answer() -> str:
            done = subprocess.run(
                ["sh", "-ec", commands], cwd=play.root, capture_output=True, text=True, check=False, timeout=60
            )
            return done.stdout

        eventually(lambda: "web /" in answer(), watch)
