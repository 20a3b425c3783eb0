"""What of a release of Gateway API a cluster lacks: laws of the decision, and what is refused, in which words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.gateway import crds as bundles
from locallb.gateway.crds import DEFINITION, Bundle, DefinitionsError, Name, carried, name_of, names, plan
from locallb.gateway.kinds import KINDS
from locallb.model.gateway_objects import GROUP

OLDER, NEWER = ("v1.6.2", "v1.5.9", "v0.8.1", "v1.6.3-rc.1"), ("v1.6.4", "v1.7.0-rc.1", "v2.0.0", "v1.10.0")
ODD: tuple[object, ...] = ("", "main", "v0.0.0-dev ", "v1.6", "1.6.3", "v1.6.3\n", "v٣.0.0", None, 7, {})
ANNOTATION, CHANNEL = "gateway.networking.k8s.io/bundle-version", "gateway.networking.k8s.io/channel"
POLICY = "ValidatingAdmissionPolicy"


def document(name: str, version: object, channel: object, kind: str = DEFINITION) -> dict[str, Any]:
    """Make an object that says of which release and channel it is."""
    return {"kind": kind, "metadata": {"name": name, "annotations": {ANNOTATION: version, CHANNEL: channel}}}


def release(channel: str, *more: str) -> tuple[dict[str, Any], ...]:
    definitions = [document(name, "v1.6.3", channel) for name in ("gateways", "httproutes", *more)]
    return (*definitions, document("safe-upgrades", "v1.6.3", channel, POLICY))


BUNDLE = Bundle("v1.6.3", {"standard": release("standard"), "experimental": release("experimental", "xmeshes")})
_versions = st.sampled_from((*OLDER, "v1.6.3", *NEWER, *ODD))
_channels = st.sampled_from(("standard", "experimental", "", "other", None, 3))


@st.composite
def clusters(draw: st.DrawFn) -> dict[Name, dict[str, Any]]:
    """Draw what a cluster has of the release's objects."""
    present = draw(st.sets(st.sampled_from(names(BUNDLE))))
    return {(kind, name): document(name, draw(_versions), draw(_channels), kind) for kind, name in present}


@given(observed=clusters(), wished=st.sampled_from(("", "standard", "experimental")))
def test_crds_are_never_downgraded_or_moved_to_another_channel(
    observed: dict[Name, dict[str, Any]], wished: str
) -> None:
    """Steps exist only where all existing CRDs are of this or an earlier release, and of that channel."""
    made = plan(BUNDLE, observed, wished)
    assert [step.document for step in made.steps] == list(BUNDLE.channels[made.channel])
    if wished:
        assert made.channel == wished
    annotations = [(kind, found["metadata"]["annotations"]) for (kind, _), found in observed.items()]
    assert bool(made.refusal) == any(
        stated[ANNOTATION] not in (*OLDER, "v1.6.3") or (kind == DEFINITION and stated[CHANNEL] != made.channel)
        for kind, stated in annotations
    )
    for step in made.steps:
        assert step.done == (
            step.name in observed and observed[step.name]["metadata"]["annotations"][ANNOTATION] == "v1.6.3"
        )


@given(odd=st.recursive(st.none() | st.text() | st.integers(), lambda more: st.dictionaries(st.text(), more)))
def test_definitions_without_a_release_are_left_alone(odd: object) -> None:
    """What says no release is left alone."""
    for found in ({"metadata": odd}, {"metadata": {"annotations": odd}}):
        assert plan(BUNDLE, {(DEFINITION, "gateways"): found}, "").refusal


@pytest.mark.parametrize(
    ("found", "wished", "reported"),
    [
        (
            document("gateways", "v1.7.0", "standard"),
            "",
            "is of v1.7.0, newer than v1.6.3, which this local-lb carries",
        ),
        (document("gateways", "main", "standard"), "", 'bundle-version is "main"'),
        ({"metadata": {}}, "", "bundle-version is missing"),
        (document("gateways", "v1.6.0", "standard"), "experimental", "say --channel standard"),
        (document("gateways", "v1.6.0", "experimental"), "standard", "say --channel experimental"),
    ],
)
def test_a_refusal_says_which_object_what_it_is_and_what_helps(
    found: dict[str, Any], wished: str, reported: str
) -> None:
    """In one sentence."""
    refusal = plan(BUNDLE, {(DEFINITION, "gateways"): found}, wished).refusal
    assert refusal.startswith(f"{DEFINITION} gateways is ")
    assert reported in refusal


def test_mixed_channels_are_reported_without_advice() -> None:
    """Whoever said either would be told to say the other one."""
    observed = {
        (DEFINITION, name): document(name, "v1.6.0", channel)
        for name, channel in (("gateways", "standard"), ("xmeshes", "experimental"))
    }
    for wished in ("", "standard", "experimental"):
        refusal = plan(BUNDLE, observed, wished).refusal
        assert "others aren't; bring all to one by what made them" in refusal
        assert "--channel" not in refusal


def test_definition_under_deletion_counts_as_absent() -> None:
    """It goes in a moment, with whatever is written over it."""
    found = document("gateways", "v1.6.3", "standard")
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    refusal = plan(BUNDLE, {(DEFINITION, "gateways"): found}, "").refusal
    assert refusal == f"{DEFINITION} gateways is being deleted; run this again once it is gone"


def test_without_a_wish_a_cluster_keeps_its_channel() -> None:
    """One that has none gets the standard one."""
    old = {(DEFINITION, "gateways"): document("gateways", "v1.6.0", "experimental")}
    assert plan(BUNDLE, old, "").channel == "experimental"
    assert plan(BUNDLE, {}, "").channel == "standard"


def test_carried_release_defines_every_served_kind() -> None:
    """In both channels: each object once, definitions before the policy that guards them, all of one release."""
    bundle = carried()
    for channel, documents in bundle.channels.items():
        called = [name_of(each) for each in documents]
        assert len({*called}) == len(called)
        assert {f"{kind.plural}.{GROUP}" for kind in KINDS.values()} <= {name for _, name in called}
        assert [kind for kind, _ in called][-2:] == [POLICY, f"{POLICY}Binding"]
        assert not any(kind.startswith(POLICY) for kind, _ in called[:-2])
        stated = [(each["kind"], each["metadata"]["annotations"]) for each in documents]
        assert {each[ANNOTATION] for _, each in stated} == {bundle.version}
        assert {each[CHANNEL] for kind, each in stated if kind == DEFINITION} == {channel}
    assert not plan(bundle, {name_of(each): each for each in bundle.channels["standard"]}, "").refusal


def test_a_broken_installation_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence, with what to do."""
    for name in ("gone.xz", "plan.py"):
        monkeypatch.setattr(bundles, "FILE", name)
        with pytest.raises(DefinitionsError, match="install local-lb again"):
            carried()
