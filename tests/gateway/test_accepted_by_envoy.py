"""Whatever objects of Gateway API say together, Envoy takes all that is made of them: no user stops another's proxy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.envoy import http_chains as names
from locallb.envoy.http_chains import SYSTEM_AUTHORITIES
from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.gateway_objects import Named
from locallb.model.gateway_of_cluster import ObjectOfCluster, TlsSecret
from locallb.model.http_serving import Certificate
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.planning.plan import make_plan
from tests.gateway import written
from tests.support.backend_tls import OTHER_PEM, bundle
from tests.support.certificates import Authority, Pair
from tests.support.envoy import validate
from tests.support.gateway_objects import DEMO, JsonObject, gateway, gateway_class, service
from tests.support.objects import node
from tests.support.planned_gateways import HOME, SETTINGS

pytestmark = pytest.mark.envoy
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
_SECRET = Named("shop", "cert")

_hosts = st.sampled_from([HostFacts(), HostFacts(watches=2)])
"""The second has no room for files besides those of listeners and clusters: all stands in these, and is looked at."""


def _law(pair: Pair, authority: Authority, examples: int) -> Callable[[], None]:
    """Return the law: of all that is planned, Envoy refuses nothing."""
    digest = pair.reference("any").digest
    secret = ObjectOfCluster(DEMO, TlsSecret(_SECRET, digest))
    certificate = Certificate(DEMO, *_SECRET, digest)

    @settings(max_examples=examples, phases=_PHASES, suppress_health_check=list(HealthCheck))
    @given(
        written.listeners(),
        st.lists(written.routes(), max_size=5),
        written.policies,
        written.bundles,
        written.tls_of_gateways,
        _hosts,
    )
    def law(  # noqa: PLR0913, PLR0917 - what all write together
        listeners: list[JsonObject],
        routes: list[JsonObject],
        trusting: JsonObject,
        authorities: str,
        tls: JsonObject,
        host: HostFacts,
    ) -> None:
        documents = [gateway_class(), gateway(*listeners, tls=tls), service(), service("secure"), trusting, node()]
        documents += [*routes, bundle(text=authorities), bundle("more", OTHER_PEM)]
        read = parse_objects(DEMO, documents)
        observed = Snapshot(HOME, read.services, nodes=read.nodes, gateway_api=(*read.gateway_api, secret))
        plan = make_plan(replace(observed, host=host), SETTINGS)
        assert len(plan.placements) + len(plan.rejections) == 1
        for planned in plan.proxies:
            with TemporaryDirectory() as made:
                directory = Path(made)
                shutil.copy(pair.chain, directory / names.chain_file(certificate))
                shutil.copy(pair.key, directory / names.key_file(certificate))
                shutil.copy(authority.own.chain, directory / SYSTEM_AUTHORITIES)
                result = validate(directory, planned.rendered.files)
            assert result.returncode == 0, result.stderr

    return law


def test_envoy_takes_what_objects_say_together(pair: Pair, authority: Authority) -> None:
    """A few of all clusters; the slow tier tries many."""
    _law(pair, authority, 15)()


@pytest.mark.slow
def test_envoy_takes_whatever_objects_say_together(pair: Pair, authority: Authority) -> None:
    """Odd and usual values, in every combination of listeners, hostnames, routes and rules."""
    _law(pair, authority, 200)()
