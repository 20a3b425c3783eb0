"""What we write into a live Service: only what is ours, only what changes, only over what was read."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from locallb.kubernetes.status import (
    FINALIZER,
    NOTHING,
    PORT_MAPPING,
    SERVING,
    ObservedStatus,
    Published,
    claiming,
    differences,
    is_deleted,
    is_it,
    observed_status,
    publication,
    published,
    publishing,
    releasing,
)
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, Owner, ProxyName, Uid
from locallb.model.objects import PORTS_ANNOTATION
from locallb.model.reasons import Condition, EntryName, Ingress, IngressPort, Problem, Reason
from locallb.model.snapshot import Access
from locallb.planning.planned import Placement, Rejection

NOW, THEN = "2026-11-21T05:00:00Z", "2026-11-01T00:00:00Z"
ENTRY = {"ip": "127.77.0.5", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP"}]}
ENTRY_PORT = {"port": 80, "protocol": "TCP"}
THEIRS = {"ip": "192.0.2.1"}
FINE = {"type": SERVING, "status": "True", "reason": "Serves", "message": ""}
WORD = Ingress("127.77.0.5", "Proxy", (IngressPort(80, "TCP"),))
TOLD = Published((WORD,), (Condition(**FINE),))
"""ENTRY and FINE as we have them."""
OTHER = {"type": "example.com/Fine", "status": "True", "reason": "Is", "message": "", "lastTransitionTime": THEN}


def live(*, finalizers: list[str] | None = None, ingress: object = None, conditions: object = None) -> dict[str, Any]:
    """Make a Service as the API gives it; what is None is absent."""
    metadata: dict[str, Any] = {"name": "web", "resourceVersion": "7"}
    if finalizers:
        metadata["finalizers"] = finalizers
    status: dict[str, Any] = {"loadBalancer": {"ingress": ingress} if ingress else {}}
    if conditions:
        status["conditions"] = conditions
    return {"metadata": metadata, "status": status}


def test_the_finalizer_joins_those_of_others_and_leaves_alone() -> None:
    """Others' finalizers keep their place; where nothing changes nothing is written."""
    both = live(finalizers=["a", FINALIZER])
    assert claiming(live(finalizers=["a"])) == {"metadata": {"resourceVersion": "7", "finalizers": ["a", FINALIZER]}}
    assert releasing(both) == {"metadata": {"resourceVersion": "7", "finalizers": ["a"]}}
    assert claiming(both) is None
    assert releasing(live(finalizers=["a"])) is None


def test_entries_and_conditions_of_others_stay() -> None:
    """Ours come first, theirs stay; withdrawn, theirs are what is left."""
    before = live(ingress=[THEIRS], conditions=[OTHER])
    patch: Any = publishing(before, (), TOLD, NOW)
    assert patch == {
        "metadata": {"resourceVersion": "7"},
        "status": {
            "loadBalancer": {"ingress": [ENTRY, THEIRS]},
            "conditions": [OTHER, {**FINE, "lastTransitionTime": NOW}],
        },
    }
    after = live(ingress=[ENTRY, THEIRS], conditions=patch["status"]["conditions"])
    removed = publishing(after, ["127.77.0.5"], NOTHING, NOW)
    assert removed is not None
    assert removed["status"] == {"loadBalancer": {"ingress": [THEIRS]}, "conditions": [OTHER]}


@pytest.mark.parametrize(
    ("stated", "wanted"),
    [(live(), NOTHING), (live(ingress=[ENTRY], conditions=[{**FINE, "lastTransitionTime": THEN}]), TOLD)],
)
def test_equal_status_needs_no_patch(stated: dict[str, Any], wanted: Published) -> None:
    """The same entries and conditions: no patch, whatever the time is."""
    assert publishing(stated, (), wanted, NOW) is None


def test_a_condition_is_dated_by_its_last_transition() -> None:
    """Another message keeps the date, another status has a new one."""
    before = live(ingress=[ENTRY], conditions=[{**FINE, "lastTransitionTime": THEN}])
    for change, date in (({"message": "x"}, THEN), ({"status": "False"}, NOW)):
        patch: Any = publishing(before, (), Published((WORD,), (Condition(**{**FINE, **change}),)), NOW)
        assert patch["status"]["conditions"] == [{**FINE, **change, "lastTransitionTime": date}]


def test_an_old_address_gives_way_to_the_new_one() -> None:
    """What we published before is replaced, not joined."""
    new = {**ENTRY, "ip": "127.77.0.6"}
    wanted = Published((replace(WORD, ip="127.77.0.6"),))
    patch: Any = publishing(live(ingress=[ENTRY]), ["127.77.0.5"], wanted, NOW)
    assert patch["status"]["loadBalancer"]["ingress"] == [new]


def test_our_status_entries_are_read_back() -> None:
    """Entries by our addresses, conditions by our prefix, without dates."""
    before = live(ingress=[ENTRY, THEIRS], conditions=[OTHER, {**FINE, "lastTransitionTime": THEN}])
    assert published(before, ["127.77.0.5"]) == TOLD


ports = st.lists(
    st.fixed_dictionaries(
        {"port": st.sampled_from([80, 443]), "protocol": st.just("TCP")},
        optional={"error": st.just("local-lb.dev/PortInUse")},
    ),
    max_size=2,
)
entries = st.lists(
    st.fixed_dictionaries(
        {"ip": st.sampled_from(["127.77.0.5", "127.77.0.6", "192.0.2.1"])},
        optional={"ipMode": st.sampled_from(["VIP", "Proxy"]), "ports": ports},
    ),
    max_size=3,
)
conditions = st.lists(
    st.sampled_from([FINE, {**FINE, "status": "False"}, OTHER]).map(
        lambda condition: {**condition, "lastTransitionTime": THEN}
    ),
    max_size=2,
    unique_by=lambda condition: condition["type"],
)
lives = st.builds(lambda ingress, stated: live(ingress=ingress, conditions=stated), entries, conditions)
wishes = st.builds(
    lambda modes, port, stated: Published(
        tuple(Ingress(ip, mode, tuple(port)) for ip, mode in modes.items()),
        TOLD.conditions if stated else (),
    ),
    st.dictionaries(st.sampled_from(["127.77.0.5", "127.77.0.6"]), st.sampled_from(["VIP", "Proxy"])),
    st.lists(
        st.builds(
            IngressPort, st.sampled_from([80, 443]), st.just("TCP"), st.sampled_from(["", "local-lb.dev/PortInUse"])
        ),
        max_size=2,
    ),
    st.booleans(),
)


@given(lives, st.sets(st.sampled_from(["127.77.0.5", "127.77.0.6"])), wishes, st.booleans())
def test_single_patch_brings_a_status_to_what_is_wanted(
    before: dict[str, Any],
    ours: set[str],
    wanted: Published,
    alone: bool,  # noqa: FBT001 - drawn
) -> None:
    """Whatever stood there; where nothing differs there is no patch."""
    patch: Any = publishing(before, ours, wanted, NOW, alone=alone)
    assert (patch is None) == (not differences(observed_status(before), ours, wanted, alone=alone))
    after = {**before, "status": patch["status"]} if patch else before
    assert differences(observed_status(after), ours, wanted, alone=alone) == ()
    assert publishing(after, ours, wanted, NOW, alone=alone) is None


rubbish = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(rubbish, rubbish, rubbish, rubbish)
def test_any_status_can_be_compared(metadata: Any, ingress: Any, stated: Any, status: Any) -> None:  # noqa: ANN401 - anything
    """What makes no sense says nothing."""
    whole = {"metadata": metadata, "status": {"loadBalancer": {"ingress": ingress}, "conditions": stated}}
    partly = {"metadata": {"finalizers": metadata}, "status": {"loadBalancer": ingress}}
    for answer in (whole, partly, {"status": status}, {}):
        assert isinstance(differences(observed_status(answer), (), TOLD), tuple)
    assert observed_status({"metadata": 5, "status": []}) == ObservedStatus()


def test_order_of_foreign_status_entries_is_no_difference() -> None:
    """Whoever always puts its own entry first is no reason to write."""
    stated = live(ingress=[THEIRS, ENTRY], conditions=[{**FINE, "lastTransitionTime": THEN}])
    assert publishing(stated, (), TOLD, NOW) is None


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"ip": "127.77.0.9"}, "addresses"),
        ({"ipMode": "VIP"}, "ipMode"),
        ({"hostname": "x.example"}, "hostname"),
        ({"ports": []}, "ports"),
        ({"ports": [{"port": 81, "protocol": "TCP"}]}, "ports"),
        ({"ports": [{"port": 80, "protocol": "UDP"}]}, "ports"),
        ({"ports": [{"port": 80, "protocol": "TCP", "error": "example.com/Broken"}]}, "ports"),
    ],
)
def test_changed_fields_of_our_entry_are_named(change: dict[str, Any], name: str) -> None:
    """Each field of it, and nothing else."""
    stated = live(ingress=[{**ENTRY, **change}], conditions=[FINE])
    assert differences(observed_status(stated), (), TOLD) == (name,)


def test_a_hostname_is_in_the_status_beside_the_address() -> None:
    """In the same entry, which keeps its ipMode; without one the field is absent, and one that was told goes."""
    named = replace(WORD, named=EntryName("shop.test"))
    patch: Any = publishing(live(ingress=[ENTRY], conditions=[FINE]), (), replace(TOLD, ingress=(named,)), NOW)
    reported = {**ENTRY, "hostname": "shop.test"}
    assert patch["status"]["loadBalancer"]["ingress"] == [reported]
    assert published(live(ingress=[reported]), ["127.77.0.5"]).ingress == (named,)
    back: Any = publishing(live(ingress=[reported], conditions=[FINE]), (), TOLD, NOW)
    assert back["status"]["loadBalancer"]["ingress"] == [ENTRY]


@pytest.mark.parametrize("field", ["status", "reason", "message"])
def test_changed_fields_of_our_condition_are_named(field: str) -> None:
    """Each field of it, and nothing else."""
    stated = live(ingress=[ENTRY], conditions=[{**FINE, field: "changed"}])
    assert differences(observed_status(stated), (), TOLD) == ("conditions",)


@pytest.mark.parametrize(
    ("finalizers", "claimed"), [([], False), (["a"], False), ([FINALIZER], True), (["a", FINALIZER], True)]
)
def test_a_service_is_claimed_by_our_finalizer(finalizers: list[str], claimed: bool) -> None:  # noqa: FBT001 - a case
    """As the watch sees it, and as the provider does."""
    observed = live(finalizers=finalizers)
    assert observed_status(observed).claimed is claimed
    assert (claiming(observed) is None) is claimed
    assert (releasing(observed) is not None) is claimed


def test_changed_error_of_a_port_is_a_difference() -> None:
    """The reason why a port isn't served is written again when it changes."""
    stated = {**ENTRY, "ports": [{**ENTRY_PORT, "error": "example.com/A"}]}
    wanted = replace(WORD, ports=(IngressPort(80, "TCP", "example.com/B"),))
    assert differences(observed_status(live(ingress=[stated])), (), Published((wanted,))) == ("ports",)


def test_a_service_is_known_by_its_uid_and_its_end_by_the_date() -> None:
    """The same name with another uid is another Service."""
    observed: Any = {"metadata": {"uid": "u1"}}
    assert is_it(observed, Uid("u1"))
    assert not is_it(observed, Uid("u2"))
    assert not is_deleted(observed)
    assert is_deleted({"metadata": {"deletionTimestamp": NOW}})


def test_where_ports_are_found_is_said_by_an_annotation_as_well() -> None:
    """It comes with the condition and goes with it, whoever changed it meanwhile; the annotations of others stay."""
    at = "80/TCP=127.0.0.1:18080"
    mapping = Condition(PORT_MAPPING, "True", "Loopback", at)
    wanted = Published((WORD,), (*TOLD.conditions, mapping))
    patch: Any = publishing(live(ingress=[ENTRY], conditions=[FINE]), (), wanted, NOW)
    assert patch["metadata"]["annotations"] == {PORTS_ANNOTATION: at}
    stated = live(ingress=[ENTRY], conditions=[FINE, asdict(mapping)])
    assert differences(observed_status(stated), (), wanted) == ("annotation",)
    stated["metadata"]["annotations"] = {PORTS_ANNOTATION: at, "theirs": "stays"}
    assert publishing(stated, (), wanted, NOW) is None
    back: Any = publishing(stated, ["127.77.0.5"], NOTHING, NOW)
    assert back["metadata"]["annotations"] == {PORTS_ANNOTATION: None}
    assert "annotations" not in cast("Any", publishing(live(ingress=[ENTRY]), (), TOLD, NOW))["metadata"]


_OWNER = Owner(Home("shop", "dev", "/srv/shop"), ObjectKey(ClusterName("demo"), "shop", "web"), Uid("u1"))
_ACCESS = Access("/k", ContextName("c"))


@pytest.mark.parametrize(
    "planned",
    [
        Placement(_OWNER, (ip_address("127.77.0.5"),), (), ProxyName("p"), access=_ACCESS),
        Rejection(_OWNER.service, Problem(Reason.NO_BACKENDS, "why"), _OWNER, _ACCESS),
    ],
)
def test_a_planned_status_is_read_back_unchanged_and_withdrawn_completely(planned: Placement | Rejection) -> None:
    """After its own patch there is nothing to write; after withdrawing there is nothing of ours."""
    wanted = publication(planned)
    patch = publishing(live(), (), wanted, THEN)
    assert patch is not None
    assert patch["metadata"] == {"resourceVersion": "7"}
    reported = {**live(), "status": patch["status"]}
    assert differences(observed_status(reported), (), wanted) == ()
    assert publishing(reported, (), wanted, NOW) is None
    ours = [entry.ip for entry in wanted.ingress]
    assert published(reported, ours) == wanted
    withdrawn = publishing(reported, ours, NOTHING, NOW)
    assert withdrawn is not None
    assert published({**live(), "status": withdrawn["status"]}, ours) == NOTHING
