"""A stack's configuration as Pulumi hands it over: flat keys with JSON inside; from here on it is typed Settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from locallb.config.parsing.settings import parse_settings
from locallb.config.settings import Settings, SettingsError
from locallb.model.formatting import clipped

NAMESPACE = "local-lb"


def program_settings() -> Settings:
    """Read the settings of the Pulumi program that is running.

    Raises:
        SettingsError: if the configuration can't be used; one sentence a mistake.

    """
    from pulumi.runtime import config  # noqa: PLC0415 - whoever runs a program has loaded the SDK

    return stack_settings({**config.get_config_env(), **config.CONFIG.get()})


def stack_settings(flat: Mapping[str, str]) -> Settings:
    """Read the settings from flat configuration, such as `{"local-lb:pools": "[...]"}`.

    Raises:
        SettingsError: if the configuration can't be used; one sentence a mistake.

    """
    _require_namespace(flat)
    prefix = f"{NAMESPACE}:"
    return parse_settings({key.removeprefix(prefix): _decoded(flat[key]) for key in flat if key.startswith(prefix)})


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
