"""The settings that annotations of an Ingress give, whichever controller's they are. Not here: parsing them."""

from __future__ import annotations

import re

from msgspec import Struct, field

from locallb.model.http.backends import Speaks
from locallb.model.http.policies import Cors
from locallb.model.http.routes import Redirect, ValueMatch
from locallb.model.identities import IPNetwork


class Canary(Struct, frozen=True):
    """The Ingress takes a share of the requests of another one that has the same host and path."""

    weight: int = 0
    total: int = 100
    always: ValueMatch | None = None
    """A header that selects the canary whatever its share."""
    never: ValueMatch | None = None


class BackendProtocol(Struct, frozen=True):
    """Protocol to backends, whatever their port says."""

    speaks: Speaks
    by_tls: bool
    """Every server is trusted."""


class Location(Struct, frozen=True):
    """Where clients are sent instead of a backend."""

    status: int
    url: str
    """An absolute one; with `keeps_request` scheme, host and port alone."""
    keeps_request: bool = False
    """Path and query of the request follow it."""

    @property
    def redirect(self) -> Redirect:
        """The redirect to its scheme, host and port. Raises ValueError where one of them is none."""
        scheme, _, rest = self.url.partition("://")
        name, _, port = re.split(r"[/?]", rest, maxsplit=1)[0].lower().partition(":")
        return Redirect(self.status, scheme, name, int(port or 0))


class Policy(Struct, frozen=True):
    """Policy for all paths of an Ingress, and its default backend."""

    expressions: bool = False
    """Paths of the type ImplementationSpecific are expressions."""
    rewrite: str = ""
    """The path that backends are asked for; `\\1` is the first group of an expression."""
    location: Location | None = None
    app_root: str = ""
    """Where clients are sent who ask for `/`."""
    to_https: bool = False
    """Clients of plain HTTP are sent to HTTPS, where the host has a certificate."""
    must_be_https: bool = False
    """Even where it has none."""
    spoken: BackendProtocol | None = None
    idle: int = 0
    """As `Forward` has it."""
    cors: Cors | None = None
    sources: tuple[IPNetwork, ...] = ()
    """As `Route` has it."""
    canary: Canary | None = None
    plain: bool = True
    """Served by plain HTTP."""
    secured: bool = True
    """Served by TLS."""
    is_denied: bool = False
    """Something that must not be passed over can't be kept: requests are answered 503."""
    problems: tuple[str, ...] = field(default=())
    """Sentences about ignored parts."""


NONE = Policy()
