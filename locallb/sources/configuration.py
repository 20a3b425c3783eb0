"""A stack's configuration as Pulumi hands it over: flat keys with JSON inside; from here on it is typed Settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from locallb.config.parsing.settings import parse_settings
from locallb.config.settings import Settings, SettingsError
from locallb.config.source import Entry
from locallb.model.formatting import clipped
from locallb.model.identities import Home
from locallb.storage.paths import CONSENTS, stack_directory

NAMESPACE = "local-lb"
_Entry = TypeVar("_Entry", bound=Entry)


def program_settings(home: Home) -> Settings:
    """Read the settings of the Pulumi program that is running, of stack `home`.

    Raises:
        SettingsError: if the configuration can't be used; one sentence a mistake.

    """
    from pulumi.runtime import config  # noqa: PLC0415 - whoever runs a program has loaded the SDK

    return stack_settings({**config.get_config_env(), **config.CONFIG.get()}, home)


def stack_settings(flat: Mapping[str, str], home: Home | None = None) -> Settings:
    """Read the settings from flat configuration, such as `{"local-lb:pools": "[...]"}`.

    With `home`, sources may use the clusters that users confirmed for that stack.

    Raises:
        SettingsError: if the configuration can't be used; one sentence a mistake.

    """
    _require_namespace(flat)
    prefix = f"{NAMESPACE}:"
    read = parse_settings({key.removeprefix(prefix): _decoded(flat[key]) for key in flat if key.startswith(prefix)})
    if home is None:
        return read
    path = str(consents_file(home))
    sources, finders = ([_confirmable(entry, path) for entry in entries] for entries in (read.sources, read.finders))
    return replace(read, sources=tuple(sources), finders=tuple(finders))


def consents_file(home: Home) -> Path:
    """Return the file of a stack that has the clusters which users confirmed."""
    return stack_directory(home) / CONSENTS


def is_confirmable(entry: object) -> bool:
    """Return whether an entry refers to a cluster that users may confirm."""
    return "consents" in getattr(entry, "__struct_fields__", ())


def _confirmable(entry: _Entry, path: str) -> _Entry:
    """Return an entry with the path of confirmed clusters, if it refers to one."""
    return cast("_Entry", replace(cast("Any", entry), consents=path)) if is_confirmable(entry) else entry


def _require_namespace(flat: Iterable[str]) -> None:
    """Check that no key is meant for us and written under another name. Raises SettingsError."""
    ours = _folded(NAMESPACE)
    odd = [key for key in flat if not key.startswith(f"{NAMESPACE}:") and _folded(key.partition(":")[0]) == ours]
    if odd:
        raise SettingsError(
            tuple(f"{key}: no such key; write {NAMESPACE}:{key.partition(':')[2]}" for key in map(clipped, odd))
        )


def _folded(name: str) -> str:
    """Return what is left of a name however it is written."""
    return name.replace("-", "").replace("_", "").lower()


def _decoded(text: str) -> object:
    """Undo Pulumi's encoding: lists and objects are JSON text, plain strings are themselves."""
    try:
        return json.loads(text)
    except ValueError:
        return text
