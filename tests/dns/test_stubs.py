"""What CoreDNS is told of a stack's zones: where it stands, what it says, and who is in the way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.dns.stubs import (
    COREFILE,
    CUSTOM,
    MAIN,
    BlockLocation,
    ConfigMap,
    StubError,
    block_in,
    changed_data,
    place_of,
    refusal,
    stub_block,
    text_at,
)
from locallb.model.identities import OwnerId

OWNER = OwnerId("local-lb-0123456789ab")
ZONES = ("lab.example 192.168.1.5:53", "test 172.18.0.1:5300")
KIND = """.:53 {
    errors
    health {
       lameduck 5s
    }
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
    }
    forward . /etc/resolv.conf
    reload
}
"""
GARDENER = ".:8053 {\n  errors\n  import custom/*.override\n}\nimport custom/*.server\n"
K3S = KIND + "import /etc/coredns/custom/*.server\n"


def main(corefile: object, **metadata: object) -> ConfigMap:
    return {"metadata": metadata, "data": {COREFILE: corefile}}


def custom(**data: str) -> ConfigMap:
    """Make the one of others, `_` for a dot."""
    return {"data": {key.replace("_", "."): text for key, text in data.items()}}


def test_a_stub_zone_for_each_beside_what_is_there() -> None:
    """At the port of the cluster's own zone, by UDP, which is all that an embedded server has."""
    place = place_of(OWNER, main(KIND), None)
    assert place == BlockLocation(MAIN, COREFILE)
    wanted = stub_block(OWNER, ZONES, main(KIND))
    text = changed_data(place, KIND, OWNER, wanted)[COREFILE]
    assert text == f"{KIND}{wanted}"
    assert "lab.example:53 {\n    errors\n    cache 5\n    forward . 192.168.1.5:53 {\n        prefer_udp\n" in wanted
    assert wanted.count("{") == wanted.count("}") == 4
    assert changed_data(place, text, OWNER, "") == {COREFILE: KIND}


def test_custom_config_map_gets_a_key_of_its_own() -> None:
    """A key of its own, which goes; the port is that of the cluster's own zone."""
    for corefile, port in ((GARDENER, 8053), (K3S, 53)):
        place = place_of(OWNER, main(corefile), custom(x_server="# x"))
        assert place == BlockLocation(CUSTOM, f"{OWNER}.server")
        wanted = stub_block(OWNER, ZONES, main(corefile))
        assert f"\ntest:{port} {{\n" in wanted
        assert changed_data(place, "", OWNER, wanted) == {place.key: wanted}
        assert changed_data(place, wanted, OWNER, "") == {place.key: None}
        assert text_at(place, main(corefile), {"data": {place.key: wanted}}) == wanted
    with pytest.raises(StubError, match="which isn't there: `kubectl create configmap coredns-custom -n kube-system`"):
        place_of(OWNER, main(GARDENER), None)


@pytest.mark.parametrize("nothing", [None, {}, {"data": None}, {"data": []}, main(None), main(7)])
def test_missing_coredns_config_map_is_reported(nothing: ConfigMap | None) -> None:
    """Told in a sentence."""
    with pytest.raises(
        StubError, match="there is no ConfigMap kube-system/coredns with a Corefile: only CoreDNS takes"
    ):
        place_of(OWNER, nothing, None)


@pytest.mark.parametrize(
    "theirs",
    [
        "test:53 {\n}\n",
        "test {\n}\n",
        "dns://TEST.:53 {\n}\n",
        "a.example, test. {\n  forward . 1.1.1.1\n}\n",
        "# test:5 {\nb.example:53 lab.example:53 {\n}\n",
        "test:53,  # and\n\n  b.example:53 {\n}\n",
        stub_block(OwnerId("local-lb-another00000"), ZONES, None),
    ],
)
def test_a_zone_that_is_there_would_keep_coredns_from_starting(theirs: str) -> None:
    """So nothing is written, wherever it stands; ours is no reason."""
    reported = refusal(BlockLocation(MAIN, COREFILE), OWNER, ZONES, main(f"{KIND}{theirs}"), None)
    assert reported.startswith("the cluster's CoreDNS serves ")
    assert reported.endswith("already; remove that there, or use another zone")
    assert refusal(BlockLocation(CUSTOM, "x"), OWNER, ZONES, main(K3S), custom(a_server=theirs)) == reported
    assert not refusal(
        BlockLocation(MAIN, COREFILE),
        OWNER,
        ZONES,
        main(f"{KIND}{stub_block(OWNER, ZONES, main(KIND))}"),
        None,
    )


@pytest.mark.parametrize("zone", ["local", "cluster.local", "svc.cluster.local", "10.in-addr.arpa"])
def test_no_zone_takes_the_clusters_own_names(zone: str) -> None:
    """Its pods would ask this host for their own Services."""
    reported = refusal(BlockLocation(MAIN, COREFILE), OWNER, [f"{zone} 172.18.0.1:5300"], main(KIND), None)
    assert reported.startswith(f"{zone} would take names of cluster.local, in-addr.arpa")
    assert reported.endswith("which are the cluster's own; use another zone")


@pytest.mark.parametrize("text", ["\n" * 500_000, "a,\n" * 250_000])
def test_a_large_text_is_read_in_one_go(text: str) -> None:
    """As a hostile cluster may have it: each line once, whatever follows."""
    assert place_of(OWNER, main(text), None) == BlockLocation(MAIN, COREFILE)
    assert not refusal(BlockLocation(MAIN, COREFILE), OWNER, ZONES, main(text), None)


@pytest.mark.parametrize(
    "theirs",
    [
        "test:54 {\n}\n",
        "(test) {\n}\n",
        "tls://test {\n}\n",
        "# test {\n",
        ".:55 {\n test {\n }\n}\n",
        "test\n",
        "}}\nx {",
        "b.example:53,\n}\ntest\n{\n}\n",
    ],
)
def test_unrelated_corefile_content_does_not_conflict(theirs: str) -> None:
    """Another port or protocol, a snippet, a comment, a plugin."""
    assert not refusal(BlockLocation(MAIN, COREFILE), OWNER, ZONES, main(f"{KIND}{theirs}"), None)


APPLIED = {"manager": "flux", "operation": "Apply", "fieldsV1": {"f:data": {"f:Corefile": {}}}}


@pytest.mark.parametrize(
    ("metadata", "party"),
    [
        ({"labels": {"addonmanager.kubernetes.io/mode": "Reconcile"}}, "the cluster's addon manager"),
        ({"annotations": {"objectset.rio.cattle.io/id": ""}}, "k3s"),
        ({"managedFields": [{"manager": "kubeadm", "operation": "Update"}, APPLIED]}, "flux, who applies it,"),
        (
            {"labels": 5, "annotations": [], "managedFields": [7, {**APPLIED, "manager": "local-lb"}, {"fieldsV1": 1}]},
            "",
        ),
        ({"labels": {"addonmanager.kubernetes.io/mode": "EnsureExists"}, "managedFields": None}, ""),
        ({"managedFields": 7}, ""),
    ],
)
def test_corefile_with_another_manager_is_refused_and_the_manager_named(
    metadata: dict[str, object], party: str
) -> None:
    """With what may be done instead; a ConfigMap for additions can be used all the same."""
    reported = refusal(BlockLocation(MAIN, COREFILE), OWNER, ZONES, main(KIND, **metadata), None)
    wanted = f"ConfigMap kube-system/coredns is kept by {party}" if party else ""
    assert reported.startswith(wanted)
    assert bool(reported) == bool(party)
    assert not refusal(BlockLocation(CUSTOM, "x"), OWNER, ZONES, main(K3S, **metadata), custom())


_LINES = st.lists(st.sampled_from([*KIND.splitlines(keepends=True), "# local-lb: end of x\n", "}", "a {\n", "\n"]))


@given(_LINES.map("".join))
def test_removing_stub_zones_restores_any_text_byte_for_byte(corefile: str) -> None:
    """Byte for byte, and nothing raises."""
    place = BlockLocation(MAIN, COREFILE)
    wanted = stub_block(OWNER, ZONES, main(corefile))
    text = changed_data(place, corefile, OWNER, wanted)[COREFILE]
    assert isinstance(text, str)
    assert block_in(text, OWNER) == wanted
    assert changed_data(place, text, OWNER, "") == {COREFILE: corefile}
    refusal(place, OWNER, ZONES, main(corefile), None)
