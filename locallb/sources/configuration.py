"""Inputs of a plan in typed form: a stack's configuration from Pulumi as Settings, and the digest of a TLS Secret.

Pulumi's configuration is flat keys with JSON inside. A Secret's certificate and key are validated here; of both only a
digest is passed on, or the reason that they can't be used.

Not here: which Secrets are read (`gateway.kinds`), and reading a key when a proxy's certificates are written
(`provider.certificates`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.registry import Entry
from locallb.config.settings import EVERY_SERVICE, Settings, SettingsError
from locallb.kubernetes.relevant import Document
from locallb.kubernetes.tls_parsing import TlsSecretError, tls_pair
from locallb.model.identities import Home
from locallb.model.texts import clipped
from locallb.patterns import pattern
from locallb.runtimes.single_instance import holder
from locallb.storage.key_pairs import is_for_tcp_alone, key_pair_fault
from locallb.storage.paths import CONSENTS, sibling_of_stack, stack_directory

_CERTIFICATE = pattern(rb"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_KEY = pattern(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s[A-Za-z0-9+/=\s]+-----END [A-Z ]*PRIVATE KEY-----")
TYPE = "kubernetes.io/tls"


def certificate_summary(document: Document) -> Mapping[str, str | bool]:
    """Return the digest of a Secret's certificate and key, or why they can't be used."""
    try:
        pair = tls_pair(document)
    except TlsSecretError as error:
        return {"problem": f"{error}; write the certificate and the key in PEM"}
    for name, text, form in (("tls.crt", pair.chain, _CERTIFICATE), ("tls.key", pair.key, _KEY)):
        if not form.search(text):
            return {"problem": f"its {name} isn't PEM; write the certificate and the key in PEM"}
    why = key_pair_fault(pair.chain, pair.key)
    if why:
        return {"problem": why}
    return {"digest": pair.digest, **({"tcpOnly": True} if is_for_tcp_alone(pair.chain) else {})}


NAMESPACE = "local-lb"
_Entry = TypeVar("_Entry", bound=Entry)


def program_settings(home: Home) -> Settings:
    """Read the settings of the Pulumi program that is running, of stack `home`.

    Raises:
        SettingsError: if the configuration can't be used; one sentence a mistake.
        ClientError: if this host lacks the resources to look for a `watch`.

    """
    from pulumi.runtime import config  # noqa: PLC0415 - whoever runs a program has loaded the SDK

    return in_force(stack_settings({**config.get_config_env(), **config.CONFIG.get()}, home), home)


def in_force(settings: Settings, home: Home) -> Settings:
    """Return what counts now: a running `watch --all-services` serves Services of every type. Raises ClientError."""
    return replace(settings, services=EVERY_SERVICE) if holder(all_services_lock(home)) else settings


def all_services_lock(home: Home) -> Path:
    """Return the file that such a `watch` holds locked."""
    return sibling_of_stack(home, "all-services")


def stack_settings(flat: Mapping[str, str], home: Home | None = None) -> Settings:
    """Read the settings from flat configuration, such as `{"local-lb:pools": "[...]"}`.

    With `home`, sources may use the clusters that users confirmed for that stack.

    Raises:
        SettingsError: if the configuration can't be used; one sentence a mistake.

    """
    return settings_of(configuration_of(flat), home)


def configuration_of(flat: Mapping[str, str]) -> Mapping[str, object]:
    """Return the keys of local-lb in flat configuration, decoded. Raises SettingsError."""
    _require_namespace(flat)
    prefix = f"{NAMESPACE}:"
    return {key.removeprefix(prefix): _decoded(flat[key]) for key in flat if key.startswith(prefix)}


def settings_of(configuration: Mapping[str, object], home: Home | None = None) -> Settings:
    """Read the settings from decoded configuration, such as `{"pools": [...]}`. Otherwise as `stack_settings`."""
    read = parse_settings(configuration)
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
