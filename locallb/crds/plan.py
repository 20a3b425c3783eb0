"""Decides which objects of a release a cluster lacks: never an older over a newer, nor one channel over another.

Pure. Refusals of the API server, as by Gateway API's own policy, are found by requests to it and not judged here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from locallb.crds.bundle import Bundle, Document
from locallb.model.fields import at, text_of
from locallb.model.formatting import shown

Name: TypeAlias = tuple[str, str]
"""A kind and a name."""
DEFINITION = "CustomResourceDefinition"
_VERSION, _CHANNEL = "gateway.networking.k8s.io/bundle-version", "gateway.networking.k8s.io/channel"
_RELEASE = re.compile(r"v(\d{1,6})\.(\d{1,6})\.(\d{1,6})(-[0-9A-Za-z.-]{1,40})?")
DEFAULT = "standard"


class Step(Struct, frozen=True):
    """One object of the release, and the installed one in its place."""

    document: Document
    had: str
    """The installed release; empty if it isn't installed."""
    has: str
    """The release that is carried."""

    @property
    def name(self) -> Name:
        """Return which object it is."""
        return name_of(self.document)

    @property
    def done(self) -> bool:
        """Return whether there is nothing to do."""
        return self.had == self.has


class CrdPlan(Struct, frozen=True):
    """The step for each object, in the order in which they are written."""

    version: str
    channel: str
    steps: tuple[Step, ...]
    refusal: str = ""
    """The reason that nothing may be written: one sentence, or empty."""


def name_of(document: Document) -> Name:
    """Return the kind and name of a document."""
    return str(document["kind"]), str(document["metadata"]["name"])


def names(bundle: Bundle) -> tuple[Name, ...]:
    """Return every object that must be looked up in a cluster, in any channel."""
    all_names = (name_of(document) for documents in bundle.channels.values() for document in documents)
    return tuple(dict.fromkeys(all_names))


def plan(bundle: Bundle, observed: Mapping[Name, Document], wished: str) -> CrdPlan:
    """Decide by the installed objects; without a wish, in the installed channel, or else the standard one."""
    channels = _channels(observed)
    channel = wished or (channels.pop() if len(channels) == 1 and channels <= {*bundle.channels} else DEFAULT)
    steps = tuple(
        Step(document, _stated(observed.get(name_of(document), {}), _VERSION), bundle.version)
        for document in bundle.channels[channel]
    )
    mixed = len(_channels(observed)) > 1
    refusals = (_refusal(document, name, bundle.version, channel, mixed=mixed) for name, document in observed.items())
    return CrdPlan(bundle.version, channel, steps, next(filter(None, refusals), ""))


def _channels(observed: Mapping[Name, Document]) -> set[str]:
    return {_stated(document, _CHANNEL) for (kind, _), document in observed.items() if kind == DEFINITION}


def _refusal(document: Document, name: Name, version: str, channel: str, *, mixed: bool) -> str:
    """Return the reason that an installed object must not be overwritten, which applies to the whole release."""
    kind, called = name
    if at(document, "metadata", "deletionTimestamp"):
        return f"{kind} {called} is being deleted; run this again once it is gone"
    has, of = _stated(document, _VERSION), _stated(document, _CHANNEL)
    installed = _parsed(has)
    if installed is None:
        fault = f"its annotation {_VERSION} is {shown(has) if has else 'missing'}"
        return f"{kind} {called} is no release's of Gateway API ({fault}); bring it up to date by what installed it"
    if installed > (_parsed(version) or installed):
        return f"{kind} {called} is of {has}, newer than {version}, which this local-lb carries; use a newer local-lb"
    if kind == DEFINITION and of != channel and mixed:
        return f"{kind} {called} is of the channel {shown(of)}, others aren't; bring all to one by what made them"
    if kind == DEFINITION and of != channel:
        remedy = f"say --channel {of}" if of in {"standard", "experimental"} else "bring it up to date by what made it"
        return f"{kind} {called} is of the channel {shown(of)}, and another one isn't put over it; {remedy}"
    return ""


def _stated(document: Document, annotation: str) -> str:
    return text_of(at(document, "metadata", "annotations", annotation))


def _parsed(version: str) -> tuple[int, int, int, bool] | None:
    """Parse a release so that later ones are greater: a candidate precedes its release."""
    match = _RELEASE.fullmatch(version)
    return (int(match[1]), int(match[2]), int(match[3]), not match[4]) if match else None
