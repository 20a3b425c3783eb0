"""What is put together of sources is the very same where one of them has it all: who knows it need not look at it."""

from __future__ import annotations

from locallb.model.memory import few_replaced
from locallb.sources.snapshot import flat


def test_items_of_a_single_source_are_passed_on_uncopied() -> None:
    """A copy would be compared item by item all the way to the plan."""
    services = ("a", "b")
    assert flat([(), services, ()]) is services
    assert flat([services, ("c",)]) == ("a", "b", "c")
    assert flat(part for part in [(), ()]) == ()


def test_the_very_same_has_no_other_items() -> None:
    """Also where there are too many to be looked at one by one."""
    many = tuple(range(1000))
    assert few_replaced(many, many) == []
