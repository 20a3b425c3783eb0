"""The trial of an Envoy, and resources, where the system refuses something: sentences with what helps."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from locallb.provider.resource_types import ResourceTypes
from locallb.resources.resource_type import ProviderError
from locallb.runtimes import resource_types
from locallb.storage.files import FilesError


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_trial_that_cannot_be_furnished_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The link to a certificate is the last that is made: the Envoy that serves isn't touched."""

    def refused(path: Path, _target: str) -> None:
        raise OSError(number, os.strerror(number), str(path))

    (tmp_path / "certificate.pem").touch()
    monkeypatch.setattr(Path, "symlink_to", refused)
    with pytest.raises(FilesError, match=f"trial, .*, can't be furnished: {os.strerror(number)}; "):
        resource_types._furnish(tmp_path / "trial", {})


class _Full:
    """A resource type that meets a disk that is full."""

    inputs = state = None

    def create(self, *_: object) -> Any:  # noqa: ANN401 - as a resource type
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/place")

    read = update = delete = create


def test_full_disk_is_reported_with_its_remedy_by_every_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """By every operation, under the embedded engine as under the Pulumi CLI."""
    types = ResourceTypes({})
    monkeypatch.setattr(types, "_kind", lambda _token: _Full())
    monkeypatch.setattr("locallb.provider.resource_types.codec.decode", lambda *_: None)
    monkeypatch.setattr("locallb.provider.resource_types.codec.recall", lambda *_: None)
    for touch in (
        lambda: types.create("t", {"a": 1}, preview=False),
        lambda: types.read("t", "n", {"a": 1}),
        lambda: types.update("t", {}, {}, preview=False),
        lambda: types.delete("t", {}),
    ):
        with pytest.raises(ProviderError, match=r"^/place: No space left on device; make room on that disk$"):
            touch()
