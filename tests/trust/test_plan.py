"""Who shall believe an authority: laws over any stores, and the commands as a person would type them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.certificates.trust_plan import (
    Believed,
    StoreEntry,
    StoreKind,
    TrustStep,
    TrustStore,
    entry_name,
    plan_trust,
    plan_untrust,
)
from locallb.model.identities import Fingerprint

FINGERPRINTS = tuple(digit * 64 for digit in "0123")
SUPPORTED = Believed(Fingerprint(FINGERPRINTS[0]), "/home/me/ca.crt")
ME, OTHER = 1000, 1001


def entry(name: str, fingerprint: str, *, believed: bool = True) -> StoreEntry:
    """Make what a store has of one certificate."""
    return StoreEntry(name, frozenset({Fingerprint(fingerprint)}), believed)


named = st.builds(entry_name, st.sampled_from((ME, OTHER)), st.sampled_from(FINGERPRINTS)) | st.just("local-lb")
entries = st.lists(
    st.builds(entry, named, st.sampled_from(FINGERPRINTS), believed=st.booleans()),
    unique_by=lambda one: (one.name, one.fingerprints),
)
stores = st.lists(
    st.builds(TrustStore, st.just(StoreKind.NSS), st.just("/s"), st.just("x"), entries.map(tuple)), max_size=3
)


def applied(present: Sequence[TrustStore], steps: Sequence[TrustStep]) -> list[TrustStore]:
    """Do what the steps say to a model of stores, in their order."""
    after = list(present)
    for step in (step for step in steps if not step.done):
        number = next(number for number, store in enumerate(present) if store is step.store)
        own = entry(step.name, step.fingerprint)
        retained = tuple(
            one for one in after[number].entries if (one.name, one.fingerprints) != (own.name, own.fingerprints)
        )
        after[number] = replace(after[number], entries=(*retained, own) if step.adds else retained)
    return after


def of_others(store: TrustStore) -> set[StoreEntry]:
    """Return what this user's `ca trust` didn't put there."""
    return {one for one in store.entries if one.name not in {entry_name(ME, each) for each in one.fingerprints}}


@given(stores)
def test_trust_replaces_only_this_users_earlier_authority(present: list[TrustStore]) -> None:
    """Earlier ones of this user go; a second time there is nothing to do; and untrust leaves what others put there."""
    after = applied(present, plan_trust(SUPPORTED, present, ME).steps)
    for before, now in zip(present, after, strict=True):
        assert any(one.believed and SUPPORTED.fingerprint in one.fingerprints for one in now.entries)
        assert of_others(now) == of_others(before)
        assert {each for one in set(now.entries) - of_others(now) for each in one.fingerprints} <= {
            SUPPORTED.fingerprint
        }
    assert all(step.done for step in plan_trust(SUPPORTED, after, ME).steps)
    removed = applied(after, plan_untrust(SUPPORTED, after, ME).steps)
    assert [set(store.entries) for store in removed] == [of_others(store) for store in present]
    assert plan_untrust(None, removed, ME).steps == ()


def test_authority_installed_by_others_stays_and_is_reported() -> None:
    """It stays trusted, so undoing has to say so."""
    by_hand = TrustStore(StoreKind.NSS, "/s", "x", (entry("local-lb", SUPPORTED.fingerprint),))
    assert [step.done for step in plan_trust(SUPPORTED, [by_hand], ME).steps] == [True]
    assert plan_untrust(SUPPORTED, [by_hand], ME).notes == (
        "/s has your authority as local-lb, which `ca trust` didn't put there: it stays",
    )


SYSTEM = TrustStore(StoreKind.SYSTEM, "/c", "x", gather=("gather",), rebuild=("gather", "--fresh"))
NAME = entry_name(ME, SUPPORTED.fingerprint)


@pytest.mark.parametrize(
    ("store", "adds", "lines"),
    [
        (SYSTEM, True, [f"install -m 644 '/h/a b' /c/{NAME}.crt", "gather"]),
        (replace(SYSTEM, by_root=True), False, [f"sudo rm /c/{NAME}.crt", "sudo gather --fresh"]),
        (
            TrustStore(StoreKind.NSS, "/h/$(x)", "x", exists=False),
            True,
            [
                "mkdir -p -m 700 '/h/$(x)'",
                "certutil -d 'sql:/h/$(x)' -N --empty-password",
                f"certutil -d 'sql:/h/$(x)' -A -t C,, -n {NAME} -i '/h/a b'",
            ],
        ),
        (TrustStore(StoreKind.NSS, "/h", "x"), False, [f"certutil -d sql:/h -D -n {NAME}"]),
        (TrustStore(StoreKind.KEYCHAIN, "/k", "x"), True, ["security add-trusted-cert -r trustRoot -k /k '/h/a b'"]),
        (TrustStore(StoreKind.KEYCHAIN, "/k", "x"), False, [f"security delete-certificate -t -Z {'0' * 64} /k"]),
    ],
)
def test_commands_are_as_a_shell_takes_them(store: TrustStore, lines: list[str], *, adds: bool) -> None:
    """Whatever a home is called."""
    step = TrustStep(store, adds, NAME, SUPPORTED.fingerprint, "/h/a b")
    assert list(step.lines) == lines
    assert tuple(tuple(shlex.split(line)) for line in lines) == step.commands


def test_store_that_cannot_be_changed_is_reported_once() -> None:
    """With the remedy."""
    store = TrustStore(StoreKind.NSS, "/s", "x", lacks="it takes certutil")
    assert plan_trust(SUPPORTED, [store, store], ME).notes == ("/s: it takes certutil",)
