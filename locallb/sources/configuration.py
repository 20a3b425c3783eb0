"""A stack's configuration as Pulumi hands it over: flat keys with JSON inside; from here on it is typed Settings."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pulumi.runtime import config

from locallb.config.parse_settings import parse_settings
from locallb.config.settings import Settings

NAMESPACE = "local-lb"


def program_settings() -> Settings:
    """Read the settings of the Pulumi program that is running.

    Raises:
        SettingsError: if the configuration can't be used; one sentence a mistake.

    """
    return stack_settings({**config.get_config_env(), **config.CONFIG.get()})


def stack_settings(flat: Mapping[str, str]) -> Settings:
    """Read the settings from flat configuration, such as `{"local-lb:pools": "[...]"}`.

    Raises:
        SettingsError: if the configuration can't be used; one sentence a mistake.

    """
    prefix = f"{NAMESPACE}:"
    return parse_settings({key.removeprefix(prefix): _decoded(flat[key]) for key in flat if key.startswith(prefix)})


def _decoded(text: str) -> object:
    """Undo Pulumi's encoding: lists and objects are JSON text, plain strings are themselves."""
    try:
        return json.loads(text)
    except ValueError:
        return text
