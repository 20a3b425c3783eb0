"""What is kept of objects that come again."""

from __future__ import annotations

import pytest

from locallb.model.identity_cache import IdentityCache


def test_the_very_same_object_is_asked_about_once_a_turn_and_an_equal_one_anew() -> None:
    """Identity counts: an equal object of later may be understood differently."""
    known, one, other, asked = IdentityCache(), ["a"], ["a"], []

    def make(name: str) -> str:
        asked.append(name)
        return name

    for _ in range(2):
        assert known.of(one, lambda: make("one")) == "one"
        known.turn()
    assert known.of(other, lambda: make("other")) == "other"
    assert asked == ["one", "other"]


def test_what_nobody_asked_for_is_forgotten() -> None:
    """Memory is bounded by what there is now."""
    known, one = IdentityCache(), ["a"]
    assert known.of(one, lambda: 1) == 1
    known.turn()
    known.turn()
    assert known.of(one, lambda: 2) == 2


def test_a_failure_is_not_kept() -> None:
    """Whoever asks again hears of it again."""
    known, one = IdentityCache(), ["a"]
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            known.of(one, lambda: 1 // 0)
        known.turn()
