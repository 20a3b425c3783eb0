"""Fragments: the configuration of one Service in a proxy that serves several.

A proxy of the stack has one LDS and one CDS file, joined from the fragments of all its Services. The metadata of every
listener and cluster names its fragment and version, so that a fragment is identified, removed and verified without
reading the others. Backends are in the clusters (STATIC): an EDS file each would take an inotify instance each. Not
here: reading and writing the files (the provider).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from locallb.envoy.clusters import cluster
from locallb.envoy.document import Message, digest, text
from locallb.envoy.http_chains import listeners as http_listeners
from locallb.envoy.listeners import listener, reader
from locallb.model.fields import at, object_of, objects_of
from locallb.model.identities import PartId
from locallb.model.objects import Discovery
from locallb.model.serving import Part

METADATA = "local-lb"
"""The name of our own metadata in Envoy."""
Texts: TypeAlias = Mapping[str, str]
"""Listeners or clusters by name, each as canonical JSON."""


class RenderedPart(Struct, frozen=True):
    """The listeners and clusters of a part, and what proves that Envoy has them."""

    listeners: Texts
    clusters: Texts
    listeners_version: str
    clusters_version: str


class Tag(Struct, frozen=True):
    """Fragment and version of a listener or cluster."""

    part: PartId
    version: str


class Tagged(Struct, frozen=True):
    """A listener or cluster in a file: its fragment (empty if it names none) and its canonical JSON."""

    part: PartId
    text: str


def render_part(part: Part) -> RenderedPart:
    """Make a fragment: the same one gives the same bytes, in any order of its content.

    A listener without an upstream or its backends is left out, so that its clients are refused; requests for such an
    upstream are answered 503. Routes, certificates and authorities are inline, as endpoints are.
    """
    upstreams = {upstream.name: upstream for upstream in part.upstreams if upstream.backends or upstream.http}
    listeners = {planned.name: listener(planned) for planned in part.listeners if planned.upstream in upstreams}
    served = (http_listener for planned in part.http for http_listener in http_listeners(planned, Discovery.STATIC))
    listeners |= {str(http_listener["name"]): http_listener for http_listener in served}
    clusters: dict[str, Message] = {name: cluster(each, Discovery.STATIC) for name, each in upstreams.items()}
    logs = {*(spec.log for spec in part.listeners), *(spec.log for spec in part.http)} - {""}
    clusters |= {name: reader(name) for name in logs}
    written, listeners_version = _written(part.id, listeners)
    written_clusters, clusters_version = _written(part.id, clusters)
    return RenderedPart(written, written_clusters, listeners_version, clusters_version)


def part_version(versions: Mapping[str, str]) -> str:
    """Name all listeners, or all clusters, of a part by their versions."""
    return digest(dict(versions))


def tag(resource: Message) -> Tag | None:
    """Read the tag of a listener or cluster, as in our files and in Envoy's own dump; None if it has none of ours."""
    value = at(resource, "metadata", "filter_metadata", METADATA)
    if not isinstance(value, Mapping):
        return None
    return Tag(PartId(str(value.get("part", ""))), str(value.get("version", "")))


def joined(resources_by_name: Mapping[str, Tagged]) -> tuple[str, str]:
    """Make the DiscoveryResponse of many listeners or clusters, and its version."""
    resources = ",".join(resources_by_name[name].text for name in sorted(resources_by_name))
    version = hashlib.sha256(resources.encode()).hexdigest()[:16]
    return f'{{"resources":[{resources}],"version_info":"{version}"}}\n', version


def split_parts(text: str) -> Mapping[str, Tagged]:
    """Parse the output of `joined`; a damaged file counts as empty."""
    return {str(resource.get("name")): _tagged(resource) for resource in _resources(text)}


def has_foreign(text: str) -> bool:
    """Return whether a file has what is no part's."""
    return not all((existing := tag(resource)) and existing.part for resource in _resources(text))


def _resources(text: str) -> Sequence[Message]:
    try:
        return objects_of(at(json.loads(text), "resources"))
    except (ValueError, RecursionError):
        return ()


def as_files(listeners: Texts, clusters: Texts) -> Mapping[str, str]:
    """Render a fragment as the files that would hold it alone, for readers of files."""
    named = {"lds.json": listeners, "cds.json": clusters}
    return {
        name: joined({name: Tagged(PartId(""), text) for name, text in texts.items()})[0]
        for name, texts in named.items()
    }


def _tagged(resource: Message) -> Tagged:
    existing = tag(resource)
    return Tagged(existing.part if existing else PartId(""), _canonical(resource))


def _written(part: PartId, messages: Mapping[str, Message]) -> tuple[Texts, str]:
    """Write listeners or clusters, each with its tag; give the version of all as well."""
    versions = {name: digest(message) for name, message in messages.items()}
    tags = {name: {METADATA: {"part": part, "version": version}} for name, version in versions.items()}
    tagged = {name: _tagged_with(messages[name], tags[name]) for name in sorted(messages)}
    return {name: _canonical(message) for name, message in tagged.items()}, part_version(versions)


def _tagged_with(message: Message, tags: Message) -> Message:
    """Add tags to a message's metadata."""
    return {**message, "metadata": {**object_of(message.get("metadata")), "filter_metadata": tags}}


def _canonical(message: Message) -> str:
    return text(message).removesuffix("\n")
