"""Keys of objects: what they print as is a promise, because names of resources and URNs are made of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.model.identities import LOCALHOST, ClusterName, IPAddress, ObjectKey, ObjectKind, RunIdentity
from locallb.model.texts import address_name, named_after

names = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,10}[a-z0-9])?", fullmatch=True) | st.sampled_from([*ObjectKind])


@given(cluster=names, namespace=names, name=names, kind=st.sampled_from(ObjectKind))
def test_a_key_is_read_back_from_what_it_prints_as(cluster: str, namespace: str, name: str, kind: ObjectKind) -> None:
    """Every kind, also where a namespace is called as a kind is."""
    key = ObjectKey(ClusterName(cluster), namespace, name, kind)
    assert ObjectKey.parse(str(key)) == key


@given(
    cluster=names,
    namespace=names,
    name=names,
    kind=st.sampled_from(ObjectKind),
    address=st.ip_addresses(),
)
def test_resources_are_named_after_their_object(
    cluster: str, namespace: str, name: str, kind: ObjectKind, address: IPAddress
) -> None:
    """Addresses too, also of a Service in a namespace that is called as a kind is."""
    key = ObjectKey(ClusterName(cluster), namespace, name, kind)
    existing = {str(key): key}
    assert named_after(str(key), existing) == named_after(address_name(key, address), existing) == key
    assert named_after("shared-1", existing) is None


@given(one=st.tuples(names, names, names, st.sampled_from(ObjectKind)), other=st.tuples(names, names, names))
def test_two_objects_never_print_alike(one: tuple[str, str, str, ObjectKind], other: tuple[str, str, str]) -> None:
    """A Gateway and a Service of one name are two."""
    key = ObjectKey(ClusterName(one[0]), *one[1:])
    service = ObjectKey(ClusterName(other[0]), *other[1:])
    assert (str(key) == str(service)) == (key == service)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (ObjectKey(ClusterName("c"), "n", "web"), "c/n/web"),
        (ObjectKey(ClusterName("c"), "n", "web", ObjectKind.GATEWAY), "c/gateways/n/web"),
        (ObjectKey(ClusterName(""), "", "shared-1"), "shared-1"),
        (LOCALHOST, "localhost"),
    ],
)
def test_keys_print_as_they_always_did(key: ObjectKey, text: str) -> None:
    """Services as before there were kinds; a proxy of the stack by its name."""
    assert str(key) == text
    assert ObjectKey.parse(text) == key


runs = st.builds(RunIdentity.of_process, st.integers(1), st.text()) | st.builds(RunIdentity, names, st.just("docker"))


@given(run=runs)
def test_a_run_is_read_back_from_what_it_prints_as(run: RunIdentity) -> None:
    """Processes and containers."""
    assert RunIdentity.parse(str(run)) == run


@pytest.mark.parametrize(
    ("run", "text"),
    [(RunIdentity.of_process(7, "b 9"), "7@b 9"), (RunIdentity("0f" * 32, "docker"), f"docker:{'0f' * 32}")],
)
def test_runs_print_as_they_always_did(run: RunIdentity, text: str) -> None:
    """States name them so."""
    assert str(run) == text
