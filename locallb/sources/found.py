"""The effective sources of a stack: configured ones, and ones that finders such as `kind` discover.

Several finders may be of one type, such as two seeds: each keeps its results in a directory of its own, and a cluster
that two of them find is one cluster. Not here: finding (`source.FinderType`), and reading sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from locallb.config.registry import Finder, Source
from locallb.config.settings import PodRouting, Settings
from locallb.kubernetes.object_parsing import Parsed
from locallb.model.errors import ClientError
from locallb.model.identities import PROCESS, ClusterName, Home
from locallb.model.routes import PodRoute
from locallb.sources import SourceError
from locallb.sources.readings import ReadCache
from locallb.sources.source import Found, SourceRead, SourceResult, finder_type
from locallb.storage import files
from locallb.storage.paths import stack_directory
from locallb.threads import in_parallel

_ROUTED = frozenset({PodRouting.HOST, PodRouting.CONTAINER})
_AT_ONCE = 16
"""Finders that are asked side by side."""
_FIRST = "called"
"""File in the directory of a finder type: the name of the finder that keeps its results there."""


def find_sources(home: Home, settings: Settings, *, keep: bool) -> tuple[tuple[Source, ...], tuple[SourceRead, ...]]:
    """Return the configured and the found sources, and the reports of the finders.

    `keep`: write found sources to files, and remove files of clusters that are gone. Raises SourceError.
    """
    findings = _findings(settings, home, keep=keep)
    sources, twice = _distinct(settings, findings)
    removed = {name for _, finding in findings for name in finding.removed} - {source.cluster for source in sources}
    for cluster in removed if keep else ():
        ReadCache(stack_directory(home)).drop(cluster)
    retained = (existing for _, finding in reversed(findings) for existing in finding.node_routes.items())
    elsewhere = {name: routes for name, routes in retained if routes}
    listed = tuple(_routed(source, elsewhere) for source in sources)
    routes = routes_to_nodes(listed)
    reads = [_reported(finding, routes, repeated) for (_, finding), repeated in zip(findings, twice, strict=True)]
    if settings.pod_routes is PodRouting.AUTO and settings.runtime == PROCESS:
        listed = tuple(source.with_forwarding(settings.services.types) for source in listed)
    return tuple(_with_pod_ranges(listed, settings, findings)), tuple(reads)


def _with_pod_ranges(
    sources: Iterable[Source], settings: Settings, findings: Iterable[tuple[Finder, Found[Source]]]
) -> Iterator[Source]:
    """Have the CNI's ranges read where routes are made; without a key for these, where the rights are there anyway."""
    own = {each.cluster for finder, finding in findings if finder.is_administered for each in finding.sources}
    for source in sources:
        is_read = source.cluster in own if settings.pod_routes is PodRouting.AUTO else settings.pod_routes in _ROUTED
        yield source.with_pod_ranges() if is_read else source


def routes_to_nodes(sources: Iterable[Source]) -> Mapping[ClusterName, tuple[PodRoute, ...]]:
    """Return the ways to Nodes that sources know."""
    return {source.cluster: source.node_routes for source in sources if source.node_routes is not None}


def _findings(settings: Settings, home: Home, *, keep: bool) -> Sequence[tuple[Finder, Found[Source]]]:
    """Ask every finder; several side by side, as clusters that don't answer take their time. Raises SourceError."""
    find = partial(_find, settings=settings, home=home, keep=keep)
    return list(zip(settings.finders, in_parallel(find, settings.finders, _AT_ONCE), strict=True))


def _find(finder: Finder, settings: Settings, home: Home, *, keep: bool) -> Found[Source]:
    """Ask a finder. Raises SourceError."""
    base = stack_directory(home) / finder.type
    first = next(other for other in settings.finders if other.type == finder.type)
    try:
        owner = files.read(base / _FIRST)
        directory = base if finder.name == (first.name if owner is None else owner) else _sibling(base, finder)
        finding = finder_type(finder.type).find(finder, Path(home.root), directory, keep=keep)
        if keep and finder.name and owner is None and base.is_dir() and directory == base:
            files.write(base / _FIRST, finder.name)
    except SourceError:
        raise
    except ClientError as error:
        raise SourceError(f"source {finder.type}: {base / _FIRST} can't be used: {error}") from None
    return finding


def _sibling(base: Path, finder: Finder) -> Path:
    return base.with_name(f"{base.name}-{finder.name}") if finder.name else base


def _distinct(
    settings: Settings, findings: Iterable[tuple[Finder, Found[Source]]]
) -> tuple[list[Source], list[tuple[str, ...]]]:
    """Return each cluster once, and for each finder the clusters that an earlier finder has too. Raises SourceError."""
    sources, notices = list(settings.sources), []
    by: dict[ClusterName, Finder | None] = {source.cluster: None for source in sources}
    for finder, finding in findings:
        repeated = []
        for source in finding.sources:
            name = source.cluster
            earlier = by.get(name)
            if name not in by:
                sources.append(source)
                by[name] = finder
            elif earlier and earlier.type == finder.type:
                repeated.append(
                    f"{name} is found by {earlier.name} and by {finder.name} of {finder.type}; it is served as"
                    f" {earlier.name} has it, which comes first in local-lb:sources, until that has it no more"
                )
            else:
                sentence = (
                    f"a source and a cluster of {finder.type} are both called {name}; give the source another `name`"
                )
                raise SourceError(sentence)
        notices.append(tuple(repeated))
    return sources, notices


def _routed(source: Source, elsewhere: Mapping[ClusterName, tuple[PodRoute, ...]]) -> Source:
    """Return a source with the ways to its Nodes that another finder has, where its own has none."""
    return source if source.node_routes != () else source.with_node_routes(elsewhere.get(source.cluster, ()))


def _reported(
    finding: Found[Source], routes: Mapping[ClusterName, tuple[PodRoute, ...]], repeated: tuple[str, ...]
) -> SourceRead:
    named = dict.fromkeys((*(source.cluster for source in finding.sources), *finding.node_routes))
    mine = {cluster: routes[cluster] for cluster in named if cluster in routes}
    read = SourceResult(Parsed(notices=(*finding.notices, *repeated)), finding.complaints)
    return SourceRead(read, unready=finding.unready, node_routes=mine)
