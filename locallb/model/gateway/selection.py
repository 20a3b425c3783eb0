"""Conditions of a listener on its routes: by namespace, its labels, and kind. Not here: the check (`attachment`)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from locallb.model.objects import EMPTY


class From(StrEnum):
    """Namespaces that may attach."""

    ALL = "All"
    SAME = "Same"
    SELECTOR = "Selector"
    NONE = "None"


class Requirement(Struct, frozen=True):
    """An entry of a label selector's matchExpressions."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()


class Selector(Struct, frozen=True):
    """A label selector; an empty one selects all."""

    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    requirements: tuple[Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object with these labels is selected; where they aren't known, only by an empty one."""
        if labels is None:
            return not (self.labels or self.requirements)
        same = all(labels.get(key) == value for key, value in self.labels.items())
        return same and all(_meets(requirement, labels) for requirement in self.requirements)


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether labels meet a requirement; False for an unknown operator."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


class Allowed(Struct, frozen=True):
    """Namespaces that may attach, and kinds of routes."""

    namespaces: From = From.SAME
    selector: Selector | None = None
    """None selects nothing."""
    kinds: tuple[tuple[str, str], ...] = ()
    """Groups and kinds; empty for all that the protocol has."""

    def admits(self, home: str, other: str, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object of the namespace `other` may attach to one of `home`.

        `labels` are those of that namespace; None where they aren't known.
        """
        match self.namespaces:
            case From.ALL:
                return True
            case From.SAME:
                return home == other
            case From.SELECTOR:
                return self.selector is not None and self.selector.selects(labels)
            case From.NONE:
                return False
