"""Digests of load balancers: they change when what a resource gets changes, and never because our code was renamed."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from locallb.config.settings import IpMode, StatusOrder
from locallb.desired import OwnProxyUser, ServingProxy, balancer_group, proxy_group, rejection_group
from locallb.model.identities import ContextName, Digest, SharingKey, Uid
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Access
from locallb.planning.notices import Notice
from locallb.planning.planned import Placement, Plan, Rejection
from tests.support.plan_cases import planned

ACCESS = Access("/home/someone/.kube/config", ContextName("kind-a"))


def balancer_digest(placement: Placement, proxy: Digest) -> Digest:
    """Return the digest of a placement, served by a proxy of which this is the digest."""
    return balancer_group(placement, replace(SERVING, digest=proxy), ()).digest


def rejection_digest(rejection: Rejection) -> Digest:
    return rejection_group(rejection).digest


def serving(plan: Plan) -> ServingProxy:
    """Return the proxy of the first placement of a plan."""
    return proxy_group(plan.proxies[0], OwnProxyUser.by(plan.placements[0]))[1]


def live(plan: Plan) -> Placement:
    """Return the first placement of a plan, as that of a live cluster."""
    return replace(plan.placements[0], access=ACCESS)


SERVING = serving(planned("chart"))
CHANGES: dict[str, Callable[[Placement], Placement]] = {
    "another address": lambda p: replace(p, addresses=(ip_address("127.77.0.31"),)),
    "another object of its name": lambda p: replace(p, owner=replace(p.owner, uid=Uid("other"))),
    "a port less": lambda p: replace(p, ports=p.ports[1:]),
    "a port without backends": lambda p: replace(
        p, ports=(replace(p.ports[0], problem=Problem(Reason.NO_BACKENDS, "none")), *p.ports[1:])
    ),
    "a listener less": lambda p: replace(p, ports=(replace(p.ports[0], listeners=()), *p.ports[1:])),
    "nothing to probe": lambda p: replace(p, probes=()),
    "another context": lambda p: replace(p, access=Access(ACCESS.kubeconfig, ContextName("kind-b"))),
    "no live cluster": lambda p: replace(p, access=None),
    "a notice": lambda p: replace(p, notices=(Notice("OtherController", "somebody else"),)),
    "ipMode VIP": lambda p: replace(p, ip_mode=IpMode.VIP),
    "others' entries go": lambda p: replace(p, take_over=True),
    "a sharing key": lambda p: replace(p, sharing=SharingKey("edge")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_digest_of_a_load_balancer_covers_every_input(change: str) -> None:
    """Every changed input makes another digest; an equal placement has the same."""
    placement = live(planned("chart"))
    assert balancer_digest(replace(placement), Digest("proxy")) == balancer_digest(placement, Digest("proxy"))
    assert balancer_digest(CHANGES[change](placement), Digest("proxy")) != balancer_digest(placement, Digest("proxy"))
    assert balancer_digest(placement, Digest("another")) != balancer_digest(placement, Digest("proxy"))


def test_a_rejection_is_reported_again_when_its_reason_changes() -> None:
    """The sentence, the code and the cluster count."""
    placement = live(planned("chart"))
    rejection = Rejection(placement.key, Problem(Reason.NO_POOL, "no pool"), placement.owner, ACCESS)
    others = (
        replace(rejection, problem=Problem(Reason.NO_POOL, "another sentence")),
        replace(rejection, problem=Problem(Reason.IN_USE, "no pool")),
        replace(rejection, access=Access("/elsewhere", ContextName("kind-a"))),
    )
    assert len({rejection_digest(reported) for reported in (rejection, replace(rejection), *others)}) == 1 + len(others)


def test_the_order_in_a_status_is_in_the_digest_of_services_with_two_families() -> None:
    """And of nobody else."""
    placement = live(planned("chart"))
    both = replace(placement, addresses=(ip_address("fd00::5"), ip_address("127.77.0.5")))
    for before, counts in ((placement, False), (both, True)):
        after = replace(before, status_order=StatusOrder.IPV4_FIRST)
        assert (balancer_digest(before, Digest("proxy")) != balancer_digest(after, Digest("proxy"))) is counts
