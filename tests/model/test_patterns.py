"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable

import pytest

from locallb.patterns import pattern

Copier = Callable[["re.Pattern[str]"], "re.Pattern[str]"]


@pytest.mark.parametrize("is_used", [False, True])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301 - its own
def test_an_expression_can_be_copied_and_pickled(copied: Copier, is_used: bool) -> None:  # noqa: FBT001 - a parameter
    """As a compiled one can."""
    one = pattern("(a)+", re.IGNORECASE)
    if is_used:
        assert one.fullmatch("aA")
    match = copied(one).fullmatch("Aa")
    assert match
    assert match[1] == "a"
