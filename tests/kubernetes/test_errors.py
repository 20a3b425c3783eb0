"""What an API's failures are: some may pass by themselves, others stay until somebody changes something."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from locallb.kubernetes.access.errors import (
    ConflictError,
    ForbiddenError,
    KubeError,
    PermanentKubeError,
    RefusedError,
    TransientKubeError,
    UnreachableError,
)
from locallb.kubernetes.api.refusals import refused


def kinds(of: type[KubeError]) -> Iterator[type[KubeError]]:
    """Return the types of failures that are no others' heading."""
    below = of.__subclasses__()
    yield from (kind for each in below for kind in kinds(each)) if below else (of,)


@pytest.mark.parametrize("kind", tuple(kinds(KubeError)), ids=lambda kind: kind.__name__)
def test_each_failure_either_may_pass_or_stays(kind: type[KubeError]) -> None:
    """Who gives something up asks for one type, not for a list of kinds that somebody has to go on with."""
    assert issubclass(kind, TransientKubeError) != issubclass(kind, PermanentKubeError)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (401, RefusedError),
        (403, ForbiddenError),
        (404, RefusedError),
        (408, UnreachableError),
        (409, ConflictError),
        (410, UnreachableError),
        (422, RefusedError),
        (429, UnreachableError),
        (500, UnreachableError),
        (503, UnreachableError),
    ],
)
def test_an_answer_says_whether_another_attempt_may_help(code: int, kind: type[KubeError]) -> None:
    """By its code; only a missing right is told with the remedy for that."""
    error = refused("https://127.0.0.1:6443", "Service a/web", code, "no", "bind a role")
    assert type(error) is kind
    assert ("bind a role" in str(error)) == (code in {401, 403})
