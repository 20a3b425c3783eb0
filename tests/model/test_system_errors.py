"""Errors of the system: which say something of what was looked for."""

from __future__ import annotations

import errno
import os

import pytest

from locallb.model.errors import FAILING, REMEDIES, SCARCE, ClientError, refuse_scarcity


@pytest.mark.parametrize("number", sorted(SCARCE))
def test_scarcity_of_the_host_is_raised_with_the_file_and_the_remedy(number: int) -> None:
    """It is no answer to the question that was asked."""
    error = OSError(number, os.strerror(number), "/proc/1/stat")
    with pytest.raises(ClientError) as caught:
        refuse_scarcity(error, "process 1 can't be looked at", ClientError)
    assert str(caught.value) == (
        f"process 1 can't be looked at: /proc/1/stat: {os.strerror(number)}; {REMEDIES[number]}"
    )
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESRCH, errno.EACCES, *sorted(FAILING)])
def test_all_else_is_an_answer(number: int) -> None:
    """Gone, hidden or unreadable: whoever looks knows what that means."""
    refuse_scarcity(OSError(number, os.strerror(number)), "x", ClientError)
