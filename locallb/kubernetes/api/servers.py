"""Errors of a Kubernetes API, and URLs of API servers, for modules that needn't load a client.

Transient and permanent errors are two types. A URL of a kubeconfig may have a password or a token in it: every shown
URL passes through `redacted`, and every error about an API through `redacted_urls`, because libraries quote URLs too.

Not here: requests (`kubernetes.api.client`), and retry delays (`model.pacing`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import Struct

from locallb.model.errors import ClientError
from locallb.patterns import pattern


class KubeError(ClientError):
    """A failed use of an API: one sentence, without credentials. Each is of one of the two types below."""

    def __init__(self, sentence: str = "") -> None:
        super().__init__(redacted_urls(sentence))


class TransientKubeError(KubeError):
    """It may pass by itself: until then the API's contents are unknown, and nothing is given up for it."""


class KubeconfigError(TransientKubeError):
    """A kubeconfig can't be read or used now, or may be half-written: it says nothing."""


class UnconfirmedError(KubeconfigError):
    """A kubeconfig's current context refers to a cluster that isn't of this host, and no user confirmed it."""


class UnreachableError(TransientKubeError):
    """The API didn't answer, or not now."""


class ConflictError(TransientKubeError):
    """Another writer changed the object since it was read."""


class PermanentKubeError(KubeError):
    """It lasts until a user changes something: a retry has the same result."""


class NoContextError(PermanentKubeError):
    """A kubeconfig is whole and lacks the context: it was removed with the cluster."""


class RefusedError(PermanentKubeError):
    """The API said no."""


class ForbiddenError(RefusedError):
    """We lack a right (403), which may be given while everything else goes on."""


_HTTPS = 443
_HIDDEN = "xxxxx"
"""Placeholder of a secret, as Go writes it."""
_SCHEME = pattern(r"[A-Za-z][A-Za-z0-9+.-]*")
_URL = pattern(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_END = pattern(r"""[)\]};,.:'"]*\Z""")
"""Characters after a URL that end its sentence or bracket."""


class Server(Struct, frozen=True):
    """An API server, as far as its kubeconfig describes the path to it."""

    url: str
    """Without credentials."""
    host: str = ""
    """The URL's host, an address or a name; empty if the URL isn't valid."""
    verified: bool = False
    """Its certificate is verified, so that no other server can impersonate it."""
    by_proxy: bool = False
    """It is reached by a proxy, of the kubeconfig or of the environment: the proxy then resolves `host`."""


def is_url(text: str, schemes: Collection[str]) -> bool:
    """Return whether a text is a URL of one of these schemes, with a host, and a valid port if any."""
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def host_of(server: str) -> str:
    """Return the host of a valid URL."""
    return urlsplit(server).hostname or ""


def is_local(server: str) -> bool:
    """Return whether the API is on this host: then no proxy of the environment is asked, as kubectl does it."""
    host = urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_exempt(name: str, server: str) -> bool:
    """Return whether NO_PROXY has the name of a server that is dialled at an address: users know the name."""
    place = f"{name}:{urlsplit(server).port or _HTTPS}"
    return bool(name) and _is_bypassed(place)


def redacted(url: str) -> str:
    """Return a URL, or a text used as one, without possible secrets: credentials, query and fragment.

    Everything before the last @ counts as credentials, as / may be in a password unescaped. Behind ? or # an @ may
    belong to either, so the host is hidden too.
    """
    scheme, mark, rest = url.partition("://")
    if not _SCHEME.fullmatch(scheme) or not mark:
        scheme, mark, rest = "", "", url
    credentials, at, rest = rest.rpartition("@")
    if "?" in credentials or "#" in credentials:
        return f"{scheme}{mark}{_HIDDEN}"
    rest, question, _ = rest.partition("#")[0].partition("?")
    hidden = f"{_HIDDEN}{at}" if at else ""
    return f"{scheme}{mark}{hidden}{rest}{question}{_HIDDEN if question else ''}"


def redacted_urls(sentence: str) -> str:
    return _URL.sub(_redacted_within, sentence) if "://" in sentence else sentence


def _redacted_within(found: re.Match[str]) -> str:
    url = found[0]
    end = _END.search(url)
    after = end[0] if end else ""
    return redacted(url.removesuffix(after)) + after


def uses_proxy(name: str, server: str) -> bool:
    """Return whether the environment names a proxy for a server; `name` is the one in its certificate, if any."""
    if is_local(server) or is_exempt(name, server):
        return False
    if not _proxies().keys() & {urlsplit(server).scheme, "all"}:
        return False
    return not _is_bypassed(host_of(server))


def _proxies() -> Mapping[str, str]:
    """Return the environment's proxies by scheme; `no` is NO_PROXY."""
    from urllib.request import getproxies_environment  # noqa: PLC0415 - commands without clusters start without it

    return getproxies_environment()


def _is_bypassed(place: str) -> bool:
    """Return whether NO_PROXY has a host, or `host:port`."""
    from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # noqa: PLC0415 - as above

    return bool(proxy_bypass_environment(place, {"no": _proxies().get("no", "").replace("*.", ".")}))
