"""Which running clusters a stack may use: clusters of this host, clusters that its configuration names, confirmed ones.

An entry of `sources` without `context` means the kubeconfig's current context, which `kubectl config use-context` moves
to any cluster, production included. So it counts only if its API server is of this host, or a user confirmed this
server for this stack. Not here: asking the user, and what is written to a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import asdict

from locallb.host.netlink import is_of_host
from locallb.kubernetes.api import in_cluster
from locallb.kubernetes.api.kubeconfig import Meaning, is_for_one_cluster, meaning, resolve
from locallb.kubernetes.api.servers import Server, UnconfirmedError
from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName, ContextName, IPAddress
from locallb.model.snapshot import Access
from locallb.model.texts import clipped
from locallb.sources import SourceError
from locallb.sources.readings import ReadCache
from locallb.storage import files, paths
from locallb.threads import addresses_of

FORMAT = 1
RESOLVER_TIMEOUT = 3.0
"""Seconds for the addresses of a server that is named."""
MAX_CONSENTS = 32
"""For one source; the oldest are forgotten."""


class ClusterEntry(Protocol):
    """A configuration entry that refers to a cluster by a kubeconfig."""

    @property
    def cluster(self) -> ClusterName: ...  # the source's name

    @property
    def kubeconfig(self) -> str: ...  # as written; empty for kubectl's default

    @property
    def context(self) -> ContextName: ...  # empty for the current one

    @property
    def consents(self) -> str: ...  # the file with the confirmed clusters; empty if there is none


class Consent(Struct, frozen=True):
    """A cluster that a source may mean by a kubeconfig's current context."""

    kubeconfig: str
    context: str
    server: str
    cluster: str
    """Digest of the route to the cluster: many may share one URL, such as k3s's https://127.0.0.1:6443."""

    @classmethod
    def of(cls, intended: Meaning) -> Consent:
        """Return the consent to what a kubeconfig means now."""
        return cls(intended.access.kubeconfig, str(intended.access.context), intended.server.url, intended.cluster)


def allowed(entry: ClusterEntry, root: Path, key: str = "") -> Access:
    """Return how the cluster of an entry is reached; `key` is that of an entry within the source's.

    Raises UnconfirmedError if that cluster may not be used, KubeError.
    """
    if entry.context:
        return resolve(entry.kubeconfig, entry.context, root)
    return allowed_meaning(entry, root, key=key).access


def allowed_meaning(entry: ClusterEntry, root: Path, existing: Meaning | None = None, key: str = "") -> Meaning:
    """Return the current meaning of an entry's kubeconfig; one that equals the allowed `existing` is allowed again.

    Raises UnconfirmedError if that cluster may not be used, KubeError.
    """
    intended = meaning(entry.kubeconfig, entry.context, root)
    if intended != existing and not (
        is_named(entry, intended, root) or is_local(intended.server) or _is_confirmed(entry, intended)
    ):
        raise UnconfirmedError(
            f"{described(intended)}; nothing is asked of it and nothing written there: write"
            f" `context: {clipped(intended.access.context)}` into {f'`{key}` of ' if key else ''}the entry "
            f"{entry.cluster}"
            " of local-lb:sources if it is meant, or change the current context"
        )
    return intended


def described(intended: Meaning) -> str:
    """Return half a sentence about a cluster that isn't of this host."""
    context, url = clipped(intended.access.context), clipped(intended.server.url) or "no server"
    return f"the current context {context} of {intended.access.kubeconfig} leads to {url}, which isn't of this host"


def is_named(entry: ClusterEntry, intended: Meaning, root: Path) -> bool:
    """Return whether an entry names its cluster: by context, or by a file for one cluster alone.

    Running in a pod names the pod's cluster.
    """
    own = bool(entry.kubeconfig) and is_for_one_cluster(entry.kubeconfig, root)
    return bool(entry.context) or own or is_of_pod(intended.access)


def is_of_pod(access: Access) -> bool:
    """Return whether `access` is to the cluster that runs this process in a pod."""
    return access.kubeconfig == str(in_cluster.kubeconfig())


def is_local(server: Server) -> bool:
    """Return whether an API server is of this host: every address of its host is.

    A name may mean another address when it is asked again, so it counts only where the certificate is checked, except
    localhost. Behind a proxy, addresses are the proxy's to interpret.
    """
    if not server.host or server.by_proxy:
        return False
    if (address := _address(server.host)) is not None:
        return is_of_host(address)
    if not server.verified and server.host != "localhost":
        return False
    found = [_address(text) for text in addresses_of(server.host, RESOLVER_TIMEOUT)]
    return bool(found) and all(address is not None and is_of_host(address) for address in found)


def _address(text: str) -> IPAddress | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def remember(path: Path, cluster: ClusterName, intended: Meaning) -> None:
    """Write down that a source may mean this cluster. Raises SourceError."""
    _extend(path, cluster, [Consent.of(intended)])


def note_served(entry: ClusterEntry, intended: Meaning, root: Path) -> None:
    """Record that a source is read by a version that asks for consent; call it before the reading is kept.

    A cluster without consent is recorded only if an earlier version served it. A cluster that is of this host, or that
    the configuration names, is not recorded: another may have its context and URL later. Raises SourceError.
    """
    if not entry.consents or entry.context:
        return
    path = Path(entry.consents)
    unasked = True
    with suppress(ClientError):
        if entry.cluster in _read(path):
            return
        unasked = is_named(entry, intended, root) or is_local(intended.server)
    _extend(path, entry.cluster, [Consent.of(intended)] if not unasked and _was_served(entry, intended) else [])


def _extend(path: Path, cluster: ClusterName, consents: list[Consent]) -> None:
    try:
        existing = _read(path)
        before = existing.get(cluster, [])
        after = [*before, *(consent for consent in consents if consent not in before)][-MAX_CONSENTS:]
        if existing.get(cluster) != after:
            existing[cluster] = after
            paths.private_directory(path.parent)
            clusters = {name: [asdict(each) for each in listed] for name, listed in existing.items()}
            files.write(path, json.dumps({"format": FORMAT, "clusters": clusters}, indent=1))
    except ClientError as error:
        raise SourceError(f"source {cluster}: that its cluster may be used can't be written down: {error}") from None


def _is_confirmed(entry: ClusterEntry, intended: Meaning) -> bool:
    if not entry.consents:
        return False
    path = Path(entry.consents)
    try:
        existing = _read(path)
    except ClientError as error:
        raise UnconfirmedError(f"{described(intended)}; whether it may be used isn't known: {error}") from None
    if entry.cluster in existing:
        return Consent.of(intended) in existing[entry.cluster]
    return _was_served(entry, intended)


def _was_served(entry: ClusterEntry, intended: Meaning) -> bool:
    """Return whether an earlier version, which asked for no consent, served this context: it is served further."""
    with suppress(SourceError):
        return intended.access.context in (ReadCache(Path(entry.consents).parent).load(entry.cluster) or {})
    return False


def _read(path: Path) -> dict[str, list[Consent]]:
    """Read what was confirmed. Raises ClientError if the file can't be used."""
    text = files.read(path)
    try:
        clusters = json.loads(text or "{}").get("clusters", {})
        return {str(name): list(_consents(listed)) for name, listed in clusters.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ClientError(f"{path} can't be understood; remove it, and confirm its clusters again") from None


def _consents(listed: Iterable[dict[str, object]]) -> Iterable[Consent]:
    """Parse the consents of one source; an entry without a digest of its cluster (an older format) allows nothing."""
    texts = ({key: str(each[key]) for key in ("kubeconfig", "context", "server")} for each in listed)
    return (Consent(**text, cluster=str(each.get("cluster", ""))) for text, each in zip(texts, listed, strict=True))
