"""Our annotations on a Service: their names, their values, and unknown ones.

What they ask for is decided in `planning`. Not here: annotations of the API's own (`parsing.service`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from locallb.gateway.fault_annotation import FAULT_ANNOTATION, annotation_problem
from locallb.model.fields import FieldError, at, object_of
from locallb.model.formatting import any_of, clipped, shown
from locallb.model.objects import ADDRESSES_ANNOTATION, PORTS_ANNOTATION

PREFIX = "local-lb.dev/"
"""Prefix of our annotations."""
SHARING_ANNOTATION = f"{PREFIX}sharing-key"
"""Services of one key may share an address; any text."""
BACKENDS_ANNOTATION = f"{PREFIX}backends"
"""Where connections go first: `auto`, `pods` or `nodePorts`."""
PROXY_PROTOCOL_ANNOTATION = f"{PREFIX}proxy-protocol"
"""The PROXY protocol towards backends: `v1` or `v2`."""
NAME_IN_STATUS_ANNOTATION = f"{PREFIX}name-in-status"
"""Whether the status has a name next to each address: `true` or `false`."""
_OURS = (
    *(ADDRESSES_ANNOTATION, SHARING_ANNOTATION, BACKENDS_ANNOTATION, PROXY_PROTOCOL_ANNOTATION),
    *(FAULT_ANNOTATION, NAME_IN_STATUS_ANNOTATION),
)


class Decision(StrEnum):
    """Value of a yes-or-no annotation."""

    YES = "true"
    NO = "false"


_Word = TypeVar("_Word", bound=StrEnum)


def annotation_path(name: str) -> str:
    """Return how a message names an annotation."""
    return f'metadata.annotations["{name}"]'


def chosen(annotations: Mapping[str, str], name: str, terms: type[_Word]) -> _Word | None:
    """Parse an annotation with one of `terms`; None if it is absent. Raises FieldError for anything else."""
    if name not in annotations:
        return None
    value = annotations[name].strip()
    if value not in list(terms):
        raise FieldError(f"{annotation_path(name)} is {shown(value)}; use {any_of(terms)}, or remove the annotation")
    return terms(value)


def unread_annotations(data: Mapping[object, object]) -> tuple[str, ...]:
    """Return sentences about unknown annotations that look like ours: they are misspelt."""
    names = object_of(at(data, "metadata", "annotations"))
    misspelt = tuple(
        f"the annotation {clipped(name)} is unknown; use {any_of(_OURS)}, or remove it"
        for name in names
        if isinstance(name, str) and name.startswith(PREFIX) and name not in {*_OURS, PORTS_ANNOTATION}
    )
    unusable = annotation_problem(names, routed=False)
    return (*misspelt, unusable) if unusable else misspelt
