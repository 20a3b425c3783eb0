"""The configuration that a stack's program gave by itself, so that commands and `watch` know it without running it.

Written by the last update of a program that declares `LoadBalancers` with arguments of its own: those of each, by its
name. Together they are one configuration, with which one plan can be made. Not here: the stack's file, which has the
configuration of all other programs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from locallb import safe_files
from locallb.config.settings import Pool, Settings, SettingsError
from locallb.dns.zones import Embedded
from locallb.model.identities import Home
from locallb.sources import SourceError
from locallb.sources.configuration import settings_of
from locallb.storage import files, paths

NAME = "program-arguments"
"""Of the file; sources' readings end with `.json`."""
FORMAT = 2
_OF_ONE = 1
"""Format of versions that had one component in a program, and not its name."""
Configuration: TypeAlias = Mapping[str, object]
_OWN = frozenset({"sources", "pools", "pins"})
"""Keys that may differ between components."""


class Stated(Struct, frozen=True):
    """What the components of a program said, by their names."""

    components: Mapping[str, Configuration] = field(default_factory=dict)
    """Of the last run, as far as it got."""
    former: Mapping[str, Configuration] = field(default_factory=dict)
    """Of earlier runs alone: the program has them no more, or the last run didn't get to them."""

    def of(self, name: str) -> Configuration | None:
        """Return what a component said last; None if nothing is known of it."""
        every = {**self.former, **self.components}
        return every.get(name, every.get(""))

    def existing(self, names: Collection[str], home: Home) -> Mapping[str, Configuration]:
        """Return what all said that the last run had, or that are among `names`, as a state has them.

        One is none of them if others have all of its clusters now: it is renamed, also where that run broke off.
        Raises SettingsError.
        """
        former = {name: configured for name, configured in self.former.items() if name in names}
        given = {source for configured in self.components.values() if former for source in _read(configured, home)}
        return {**{name: one for name, one in former.items() if not _read(one, home) <= given}, **self.components}


def file_of(home: Home) -> Path:
    """Return the file of a stack with its program's arguments."""
    return paths.stack_directory(home) / NAME


def write(home: Home, stated: Stated) -> None:
    """Write down what the program said. Raises SourceError."""
    document = {"format": FORMAT, "components": stated.components, "former": stated.former}
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    try:
        if files.read(file_of(home)) != text:
            paths.private_directory(file_of(home).parent)
            files.write(file_of(home), text)
    except (files.FilesError, paths.PlaceError) as error:
        raise SourceError(f"the arguments of the program can't be written down: {error}") from None


def forget(home: Home) -> None:
    """Remove it: the stack's file has the configuration. Raises SourceError."""
    try:
        file_of(home).unlink(missing_ok=True)
    except OSError as error:
        raise SourceError(f"{file_of(home)} can't be removed: {error.strerror}; remove it") from None


def forget_former(home: Home) -> None:
    """Forget the components that the program doesn't have any more: it ran to its end. Raises SourceError."""
    if (stated := read(home)) and stated.former:
        write(home, replace(stated, former={}))


def read(home: Home) -> Stated | None:
    """Return what the program said last; None if it leaves that to the stack's file. Raises SourceError."""
    path = file_of(home)
    try:
        text = files.read(path, safe_files.STATE)
        return None if text is None else _parsed(json.loads(text))
    except files.FilesError as error:
        raise SourceError(f"can't determine what the program says: {error}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SourceError(f"{path} isn't as local-lb writes it ({error}): remove it, then run `locallb up`") from None


def _parsed(document: Mapping[str, object]) -> Stated:
    """Read what was written. Raises ValueError, KeyError or TypeError."""
    if document["format"] == _OF_ONE:
        return Stated({"": _configuration(document["configuration"])})
    if document["format"] != FORMAT:
        raise ValueError(f"its format is {document['format']!r}, and this version knows {FORMAT}")
    every = [document["components"], document["former"]]
    return Stated(
        *[{name: _configuration(configured) for name, configured in _configuration(each).items()} for each in every]
    )


def _configuration(value: object) -> Configuration:
    if not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} in the place of an object")
    return value


def settings(components: Mapping[str, Configuration], home: Home) -> Settings:
    """Read the one configuration of all components: each has sources, pools and pins of its own, and all else alike.

    Raises:
        SettingsError: if there is no one configuration; one sentence a mistake.

    """
    each = {name: settings_of(configured, home) for name, configured in components.items()}
    if len(each) == 1:
        return next(iter(each.values()))
    if mistakes := (*_differences(components), *_repeated(each), *_indivisible(each)):
        raise SettingsError(mistakes)
    one, *_ = each.values()
    return replace(
        one,
        sources=tuple(source for one in each.values() for source in one.sources),
        finders=tuple(finder for one in each.values() for finder in one.finders),
        pools=_pools(each),
        pins={service: addresses for one in each.values() for service, addresses in one.pins.items()},
    )


def _differences(components: Mapping[str, Configuration]) -> Iterator[str]:
    """Explain in which keys components differ that are one for the whole stack."""
    (first, configured), *others = components.items()
    for name, other in others:
        keys = sorted({*configured, *other} - _OWN)
        if differing := [key for key in keys if configured.get(key) != other.get(key)]:
            yield (
                f"LoadBalancers {first!r} and {name!r} differ in {', '.join(differing)}, of which a stack has one:"
                f" give both the same; {', '.join(sorted(_OWN))} may differ"
            )


def _repeated(each: Mapping[str, Settings]) -> Iterator[str]:
    """Explain which clusters and pins are there twice."""
    owners: dict[str, str] = {}
    for name, one in each.items():
        named = sorted(f"the source {source}" for source in _sources(one))
        for what in (*named, *(f"a pin for {service}" for service in one.pins)):
            if (earlier := owners.setdefault(what, name)) != name:
                yield f"LoadBalancers {earlier!r} and {name!r} both have {what}: leave it to one of them"


def _sources(one: Settings) -> AbstractSet[str]:
    return {*(source.cluster for source in one.sources), *(finder.name or finder.type for finder in one.finders)}


def _read(configured: Configuration, home: Home) -> AbstractSet[str]:
    """Return the sources of a component. Raises SettingsError."""
    return _sources(settings_of(configured, home))


def _indivisible(each: Mapping[str, Settings]) -> Iterator[str]:
    """Explain what several components can't have, as it depends on all that is served."""
    names, one = " and ".join(map(repr, each)), next(iter(each.values()))
    remedy = "make it one component with the sources of all"
    if one.proxies.mode is not type(one.proxies)().mode or one.proxies.spares:
        yield f"LoadBalancers {names} can't share proxies, nor spare ones: {remedy}, or remove proxies"
    if one.dns and any(isinstance(zone.server, Embedded) for zone in one.dns.zones):
        yield f"LoadBalancers {names} can't share an embedded name server: {remedy}, or remove dns"
    if one.localhost:
        yield f"LoadBalancers {names} can't share the names below localhost: {remedy}, or remove localhost"
    if not _have_same_pools(each):
        finding = [name for name, one in each.items() if one.finders]
        if finding:
            yield f"LoadBalancers {finding[0]!r} finds its clusters, so it can't have other pools than {names} have"


def _have_same_pools(each: Mapping[str, Settings]) -> bool:
    first, *others = each.values()
    return all(other.pools == first.pools for other in others)


def _pools(each: Mapping[str, Settings]) -> tuple[Pool, ...]:
    """Return the pools of all, where they differ each for the clusters of its component alone."""
    if _have_same_pools(each):
        return next(iter(each.values())).pools
    return tuple(
        replace(pool, name=f"{name}/{pool.name}", clusters=frozenset(source.cluster for source in one.sources))
        for name, one in each.items()
        for pool in one.pools
    )
