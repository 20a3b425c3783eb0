"""The interface of a DNS provider, which writes names into a zone that others write to as well, and the list of all.

The stack's own server is none: its names are the configuration of a proxy (`planning.names`). Not here: the content of
updates (`updates`), and how the key `dns` is parsed (`config.dns`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, cast

from locallb.dns.updates import Marker, ServerAnswer, Update
from locallb.dns.zones import RFC2136, UpdatedServer
from locallb.model.errors import ClientError
from locallb.model.identities import OwnerId, ZoneName


class DnsProviderError(ClientError):
    """A server doesn't answer, or refuses an update: one sentence with the zone, the server and the remedy."""


class DnsProvider(ABC):
    """One zone at its server. Each method asks the server and raises DnsProviderError."""

    def __init__(self, zone: ZoneName, server: UpdatedServer, root: Path) -> None:
        self.zone, self.server, self._root = zone, server, root

    def __str__(self) -> str:
        return f"zone {self.zone} at {written_at(self.server) or self.server}"

    def file(self, key: str) -> Path | None:
        """Return the path that an own key of the zone's entry has, relative to the project; None without it.

        The home of a user that this host doesn't know stays as it is written: no such file can be read.
        """
        given = dict(self.server.options).get(key)
        if not given:
            return None
        try:
            return self._root / Path(given).expanduser()
        except RuntimeError:
            return self._root / given

    @abstractmethod
    def names(self, owner: OwnerId) -> Iterable[tuple[str, Marker]]:
        """Return all names of the zone that have a marker of this owner."""

    @abstractmethod
    def records(self, name: str, *, classic: bool = False) -> ServerAnswer:
        """Read the records of a name, a wildcard's perhaps, and its markers.

        `classic`: also texts at the name itself, where external-dns has its markers of old.
        """

    @abstractmethod
    def apply(self, update: Update, ttl: int) -> bool:
        """Apply the whole update, or nothing; return False where a prerequisite doesn't hold any more."""

    @abstractmethod
    def version(self) -> object:
        """Return a value that changes with the zone; None where the server doesn't answer. Raises nothing."""


class _Registered(NamedTuple):
    module: str
    """Where `PROVIDER` is, a DnsProvider; loaded by stacks that use it only."""
    example: str
    """A value of the zone's key."""
    keys: Mapping[str, str]
    """Optional keys next to `server`, `owner` and `takeOver`; what each is, in words."""
    place_keys: tuple[str, ...] = ()
    """Those of them that say where names are written, if not at `server`: names move when such a value changes."""


PROVIDERS: Mapping[str, _Registered] = {
    RFC2136: _Registered(
        "locallb.dns.rfc2136", "{server: 127.0.0.1:53, tsig: FILE}", {"tsig": "the file that has the key"}
    ),
}
"""DNS providers by the zone's key in `dns.zones`."""


def written_at(server: UpdatedServer) -> str:
    """Return where names are written, by the provider's own keys; empty for the server that answers for them."""
    registered, given = PROVIDERS.get(server.provider), dict(server.options)
    return " ".join(given[key] for key in registered.place_keys if key in given) if registered else ""


def open_zone(zone: ZoneName, server: UpdatedServer, root: Path) -> DnsProvider:
    """Return the provider of a zone, without asking its server. Raises DnsProviderError."""
    if server.provider not in PROVIDERS:  # a state of another version
        sentence = f"zone {zone} at {server}: there is no DNS provider {server.provider} in this version"
        raise DnsProviderError(f"{sentence}; use the version that wrote the name")
    provider = import_module(PROVIDERS[server.provider].module).PROVIDER
    return cast("type[DnsProvider]", provider)(zone, server, root)
