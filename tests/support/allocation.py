"""Services, pools and claims, and the addresses that are allocated of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from msgspec.structs import replace

from locallb.config.settings import Pool, Settings
from locallb.model.identities import ClusterName, Family, Home, IPAddress, ObjectKey, Owner, Uid
from locallb.model.objects import FamilyPolicy, IngressEntry, Node, Service
from locallb.model.ranges import AddressRange
from locallb.model.reasons import Problem
from locallb.model.snapshot import Claim, HostFacts, Snapshot
from locallb.planning.allocation import Answer, allocate
from tests.support.strategies import HOME

BOTH = (Family.IPV4, Family.IPV6)
CLUSTER = ClusterName("a")
FOUR = AddressRange(ip_address("10.0.0.0"), ip_address("10.0.0.3"))
SIX = AddressRange(ip_address("fd00::"), ip_address("fd00::3"))
PREFER, REQUIRE = FamilyPolicy.PREFER_DUAL, FamilyPolicy.REQUIRE_DUAL


def key(name: str) -> ObjectKey:
    return ObjectKey(CLUSTER, "n", name)


def service(  # noqa: PLR0913 - a test names what it is about, all else has a default
    name: str,
    *requested: str,
    families: tuple[Family, ...] = (Family.IPV4,),
    policy: FamilyPolicy | None = None,
    status: Sequence[str] = (),
    created: str = "",
    labels: Mapping[str, str] | None = None,
) -> Service:
    """Make a Service; two families without a policy prefer both."""
    return Service(
        key=key(name),
        ports=(),
        uid=Uid(f"uid-{name}"),
        created=created,
        families=families,
        family_policy=policy or (PREFER if len(families) > 1 else FamilyPolicy.SINGLE),
        requested=tuple(ip_address(text) for text in requested),
        labels=labels or {},
        ingress=tuple(IngressEntry(ip_address(text)) for text in status),
    )


def pool(*ranges: AddressRange, name: str = "p", **more: Any) -> Pool:  # noqa: ANN401 - the fields of Pool
    """Make a pool of the ranges, by default of four addresses of each family."""
    return replace(Pool(name, ranges or (FOUR, SIX)), **more)


def claim(address: str, name: str, home: Home = HOME, uid: str | None = None) -> Claim:
    """Make a claim of a Service of namespace n."""
    return Claim(ip_address(address), Owner(home, key(name), Uid(f"uid-{name}" if uid is None else uid)))


def given(  # noqa: PLR0913 - a test names what it is about, all else has a default
    *services: Service,
    pools: Sequence[Pool] = (),
    pins: Mapping[str, Sequence[str]] | None = None,
    others: Sequence[Service] = (),
    ledger: Sequence[Claim] = (),
    state: Sequence[Claim] = (),
    nodes: Sequence[Node] = (),
    host: HostFacts | None = None,
    external_ips: Sequence[str] = (),
) -> dict[str, Answer]:
    """Allocate, and give the answers by Service name; `others` are Services that aren't ours."""
    snapshot = Snapshot(HOME, (*services, *others), nodes=tuple(nodes), claims=tuple(ledger), remembered=tuple(state))
    elsewhere = frozenset(map(ip_address, external_ips))
    snapshot = replace(snapshot, host=host or HostFacts(), external_ips=elsewhere)
    wanted = {name: tuple(map(ip_address, texts)) for name, texts in (pins or {}).items()}
    answers = allocate(snapshot, services, Settings((), tuple(pools) or (pool(),), wanted))
    assert list(answers) == [
        service.key for service in sorted(services, key=lambda service: (service.created, service.key))
    ]
    return {found.name: answer for found, answer in answers.items()}


def terms(answer: Answer) -> str:
    """Write an answer: the addresses, or the reason code."""
    return str(answer.reason) if isinstance(answer, Problem) else " ".join(map(str, answer))


def doubtful(address: str) -> Claim:
    """Make a claim that can't be read just now."""
    nobody = Owner(Home("", "", ""), ObjectKey(ClusterName(""), "", ""))
    return Claim(ip_address(address), nobody, problem="/ledger/x can't be read; look after that disk", unread=True)


def addresses_of(answer: Answer) -> tuple[IPAddress, ...]:
    """Return the addresses of an answer, none of a refusal."""
    return () if isinstance(answer, Problem) else answer
