"""The system's store where something is refused: what it believed it believes still."""

from __future__ import annotations

from pathlib import Path

import pytest

from locallb.certificates import trust_stores as system
from locallb.certificates.trust_plan import StoreKind, TrustStep, TrustStore, system_file
from locallb.certificates.trust_stores import TrustError
from locallb.model.identities import Fingerprint
from tests.support.descriptors import few_files


def step(place: Path, *gather: str) -> TrustStep:
    """Return one that adds an authority, with the command that gathers."""
    (place / "ca.crt").write_text("new")
    store = TrustStore(StoreKind.SYSTEM, str(place), "all", gather=gather, rebuild=gather)
    return TrustStep(store, True, "local-lb-0-ab", Fingerprint("ab"), str(place / "ca.crt"))


def test_failed_update_of_the_system_store_restores_the_former_file(tmp_path: Path) -> None:
    """The file that was there, or none."""
    adding = step(tmp_path, "false")
    for before in (None, "old"):
        if before:
            Path(system_file(adding)).write_text(before)
        with pytest.raises(TrustError, match="false"):
            system.change_system(adding)
        assert (Path(system_file(adding)).read_text() if before else None) == before
        assert Path(system_file(adding)).exists() is bool(before)


def test_temporarily_unreadable_authority_file_does_not_count_as_absent(tmp_path: Path) -> None:
    """It would be removed when the update of the store fails as well."""
    adding = step(tmp_path, "true")
    Path(system_file(adding)).write_text("old")
    for spare in range(2):
        with few_files(spare), pytest.raises(TrustError, match="raise the limit of open files"):
            system.change_system(adding)
        assert Path(system_file(adding)).read_text() == "old"
    system.change_system(adding)
    assert Path(system_file(adding)).read_text() == "new"


def test_a_store_that_cannot_be_read_for_a_moment_is_not_empty(tmp_path: Path) -> None:
    """What lies there would be put there again, or left when it is to go."""
    for name in ("local-lb-a.crt", "other.crt"):
        (tmp_path / name).write_text("?")
    with few_files(0), pytest.raises(TrustError, match="raise the limit of open files"):
        system.system_entries(tmp_path)
    with few_files(1):
        assert [entry.name for entry in system.system_entries(tmp_path)] == ["local-lb-a"]
    assert system.system_entries(tmp_path / "absent") == ()
