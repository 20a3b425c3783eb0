"""The shoots of a seed, each followed as a source `kubernetes` of its own, and the seed before them.

How the API of each is reached, Secrets of selected shoots only say. A shoot's access is kept, for this user only, in a
kubeconfig under a stable path: published data can be removed after the shoot is gone. A seed that doesn't answer isn't
one without shoots: the last found ones count.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from locallb.kubernetes.answers import Object, listed
from locallb.kubernetes.api.client import NAMESPACE
from locallb.kubernetes.api.connected import Connected, ServedKind
from locallb.kubernetes.api.servers import KubeError, RefusedError
from locallb.model import http_checks
from locallb.model.fields import LABEL, JsonObject, at, text_of
from locallb.model.identities import ClusterName, ContextName, IPAddress, in_place
from locallb.model.memory import Memo
from locallb.model.pacing import Pace
from locallb.model.routes import PodRoute
from locallb.model.texts import few
from locallb.patterns import pattern
from locallb.sources import SourceError, kept_access
from locallb.sources.consents import allowed
from locallb.sources.entries import GardenerFinder, KubernetesSource, node_routes, parsed_routes, printed_routes
from locallb.sources.kept_access import (
    LARGEST,
    SUFFIX,
    GeneratedAccess,
    ServerAddress,
    admitted,
    forgotten,
    put,
    retained,
)
from locallb.sources.kubernetes.nodes import MachinesApi
from locallb.sources.source import PACE, FinderType, Found, Polls
from locallb.storage import files

LABELS = {"gardener.cloud/role": "shoot", "shoot.gardener.cloud/provider": "local"}
"""Labels of control plane namespaces of shoots with Nodes on this host."""
TOKEN, ADMIN = "shoot-access-local-lb", "gardener"
"""Secrets: a token requested for local-lb, with its own rights; otherwise the administrator's."""
_GENERIC = "generic-token-kubeconfig"
_GENERIC_NAME = "generic-token-kubeconfig.secret.gardener.cloud/name"
_VISIBLE = pattern(r"[!-~]+")
Secret = JsonObject
Records: TypeAlias = Mapping[str, IPAddress]
"""Addresses of names, as the DNSRecords of one shoot have them."""


class Shoot(Struct, frozen=True):
    """A shoot of the provider `local` with enough data in its Cluster to reach it."""

    name: ClusterName
    """Its technical ID, which is the namespace of its control plane."""
    api: str = ""
    """The name of its API from outside; empty where it has none."""
    generic: str = _GENERIC
    """The Secret with the kubeconfig that lacks a token."""
    silent: str = ""
    """The reason that its API needn't answer."""


def parse_shoot(document: JsonObject) -> Shoot | None:
    """Read a Cluster; None where it isn't, or not yet, a shoot that is reached from this seed."""
    name, annotations = text_at(document, "metadata", "name"), at(document, "metadata", "annotations")
    shoot = at(document, "spec", "shoot")
    is_shoot = LABEL.fullmatch(name) and text_at(shoot, "status", "technicalID") == name
    if not is_shoot or text_at(shoot, "spec", "provider", "type") != "local":
        return None
    generic, domain = _host(text_at(annotations, _GENERIC_NAME)) or _GENERIC, text_at(shoot, "spec", "dns", "domain")
    return Shoot(ClusterName(name), _host(f"api.{domain}"), generic, _silence(shoot))


def way(
    shoot: Shoot, secret: Callable[[str], Secret | None], records: Records = MappingProxyType({})
) -> GeneratedAccess:
    """Find out how a shoot's API is reached, by the Secrets of its namespace; nothing where it isn't up yet.

    Where `records` say to which address its name leads, that is dialled: this host needn't resolve the name.
    """
    requested, context = secret(TOKEN), ContextName(shoot.name)
    if requested is None:
        return admitted(context, _data(secret(ADMIN), "kubeconfig"), lambda server: _reach(server, records))
    token = (_data(requested, "token") or b"").decode("ascii", "replace").strip()
    if not (shoot.api and _VISIBLE.fullmatch(token)):
        return GeneratedAccess()
    reached = _reach(f"https://{shoot.api}", records)
    return admitted(context, _data(secret(shoot.generic), "kubeconfig"), lambda _inside: reached, token)


def read_records(documents: Iterable[JsonObject]) -> Mapping[str, Records]:
    """Return the addresses of names in a seed's DNSRecords, by namespace; the first value of each counts.

    If a name has addresses of both families, IPv4 counts.
    """
    records: dict[str, dict[str, IPAddress]] = {}
    for document in documents:
        name, values = _host(text_at(document, "spec", "name")), at(document, "spec", "values")
        address = _address(values[0]) if isinstance(values, list) and values else None
        if name and address:
            existing = records.setdefault(text_at(document, "metadata", "namespace"), {})
            existing[name] = min(address, existing.get(name, address), key=lambda given: (given.version, int(given)))
    return records


def _address(text: object) -> IPAddress | None:
    with suppress(ValueError):
        address = ip_address(text) if isinstance(text, str) and "%" not in text else None
        return address if address and not address.is_unspecified and not address.is_multicast else None
    return None


def _reach(server: str, records: Records) -> ServerAddress:
    """Return how a server is reached: at the address of its name, where that is known. Raises ValueError."""
    parts = urlsplit(server)
    name = _host(parts.hostname or "")
    if parts.scheme != "https" or name not in records:
        return ServerAddress(server)
    address, port = records[name], f":{parts.port}" if parts.port else ""
    return ServerAddress(f"https://{in_place(address)}{port}", name)


def _silence(shoot: object) -> str:
    if at(shoot, "metadata", "deletionTimestamp"):
        return "is being deleted"
    wanted, done = at(shoot, "spec", "hibernation", "enabled"), at(shoot, "status", "hibernated")
    return "is hibernated" if wanted is True or done is True else ""


def _host(text: str) -> str:
    """Return a valid host of a URL; empty if it is invalid."""
    with suppress(ValueError):
        return http_checks.hostname(text, wildcard=False)
    return ""


def _data(secret: Secret | None, key: str) -> bytes | None:
    """Return what a Secret has; None if it hasn't, or too much."""
    text = text_at(secret, "data", key)
    try:
        return base64.b64decode(text, validate=True) if 0 < len(text) <= 2 * LARGEST else None
    except (binascii.Error, ValueError):
        return None


def text_at(value: object, *keys: str) -> str:
    """Return a text at the end of the keys; empty where there is none."""
    return text_of(at(value, *keys))


_GROUP = "extensions.gardener.cloud/v1alpha1"
_CLUSTER = ServedKind(_GROUP, "Cluster", "clusters")
_RECORD = ServedKind(_GROUP, "DNSRecord", "dnsrecords")
_PAGE = 100
_SYSTEM = "kube-system"


class SeedContents(Struct, frozen=True):
    """Contents of a seed."""

    identity: str
    """Identity of the seed, independent of its name and address."""
    present: frozenset[str]
    """Technical IDs of shoots of which it has anything."""
    shoots: Mapping[str, Shoot]
    accesses: Mapping[str, GeneratedAccess]
    """Access to the requested shoots."""
    machines: Mapping[str, tuple[PodRoute, ...]] | None = None
    """The ways to their Nodes; None where they may not be read."""


class Seed(MachinesApi):
    """The API of a seed."""

    rights = "docs/gardener.md#rights"

    def inspect(self, is_requested: Callable[[str], bool]) -> SeedContents:
        """Read its shoots, and the access to each shoot that `is_requested` selects. Raises KubeError."""
        identity = self._identity()
        control_planes = self._control_planes()
        clusters = self._clusters()
        parsed = {
            str(shoot.name): shoot for shoot in map(parse_shoot, clusters) if shoot and shoot.name in control_planes
        }
        records = read_records(self._records())
        accesses = {
            name: self._way(shoot, records.get(name, {})) for name, shoot in parsed.items() if is_requested(name)
        }
        present = control_planes | {str(document["metadata"]["name"]) for document in clusters}
        return SeedContents(identity, frozenset(present), parsed, accesses, self._node_routes())

    def _identity(self) -> str:
        """Return the uid of kube-system, which stays as long as a cluster does. Raises KubeError."""
        subject = f"Namespace {_SYSTEM}"

        def ask(api: Connected) -> str:
            return str(listed(api.get(NAMESPACE.path(name=_SYSTEM)), NAMESPACE.api, NAMESPACE.name)["metadata"]["uid"])

        return self._call(subject, ask) or ""

    def _control_planes(self) -> set[str]:
        """Return the namespaces of shoots; one that hosts itself is the seed. Raises KubeError."""
        namespaces = self._list(NAMESPACE, labels=LABELS, page=_PAGE)
        return {str(document["metadata"]["name"]) for document in namespaces} - {_SYSTEM}

    def _clusters(self) -> list[Object]:
        return self._list(_CLUSTER, page=_PAGE)

    def _node_routes(self) -> Mapping[str, tuple[PodRoute, ...]] | None:
        """Return the ways to the Nodes of shoots; None where this user may not ask. Raises KubeError."""
        try:
            return node_routes(self.machines())
        except KubeError as error:
            if not isinstance(error, RefusedError):
                raise
            return None

    def _records(self) -> list[Object]:
        """Return the DNS records; empty without the right to read them, or without such records. Raises KubeError.

        Names are then resolved by this host.
        """
        try:
            return self._list(_RECORD, page=_PAGE)
        except KubeError as error:
            if not isinstance(error, RefusedError):
                raise
            return []

    def _way(self, shoot: Shoot, records: Records) -> GeneratedAccess:
        return way(shoot, lambda name: self.secret(shoot.name, name), records)


_ROUTES = ".routes"


def is_selected(finder: GardenerFinder, shoot: str) -> bool:
    return not finder.shoots or any(fnmatchcase(shoot, pattern) for pattern in finder.shoots)


def find_shoots(finder: GardenerFinder, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
    """Find the shoots, and how each is reached: in files in `directory`, which are only written to `keep` them.

    Raises:
        SourceError: if the seed doesn't answer and no shoot was ever found, or a kubeconfig can't be kept.

    """
    existing = retained(directory)
    try:
        seed = Seed(allowed(finder, root))
        inspect = seed.inspect(lambda name: is_selected(finder, name) or name in existing)
    except KubeError as error:
        return _as_last_found(finder, existing, directory, error)
    if elsewhere := _elsewhere(inspect.identity, directory, existing):
        routes = _routes_retained(directory)
        return Found(_sources(finder, existing, directory, None), complaints=(elsewhere,), node_routes=routes)
    removed = sorted(existing.keys() - inspect.present)
    _keep(inspect, directory, existing, removed, keep=keep)
    existing |= {name: directory / f"{name}{SUFFIX}" for name, access in inspect.accesses.items() if access.text}
    return Found(
        _sources(
            finder, {name: path for name, path in existing.items() if name in inspect.present}, directory, inspect
        ),
        notices=(
            *_missing(finder, inspect.present),
            *_unreached(finder, existing, inspect),
            *_without_routes(finder, inspect),
        ),
        node_routes=_routes_retained(directory) if inspect.machines is None else _by_shoot(inspect.machines),
        removed=tuple(map(ClusterName, removed)),
    )


def _keep(
    inspect: SeedContents, directory: Path, existing: Mapping[str, Path], removed: Collection[str], *, keep: bool
) -> None:
    """Write the kubeconfigs and routes of shoots, and empty the files of removed shoots. Raises SourceError."""
    write = partial(put, "gardener", keep=keep)
    usable = {name: access.text for name, access in inspect.accesses.items() if access.text}
    for name, text in usable.items():
        write(directory / f"{name}{SUFFIX}", text)
    if keep:
        for name in removed:
            write(existing[name], forgotten())
            write(_routes_file(directory, name), "")
        for name, routes in _changed_routes(directory, inspect).items():
            write(_routes_file(directory, name), printed_routes(routes))
        if usable:
            write(_seed(directory), inspect.identity)


def _node_routes(name: str, directory: Path, inspect: SeedContents | None) -> tuple[PodRoute, ...]:
    """Return the routes to a shoot's Nodes as the seed reports them; the stored ones if it doesn't."""
    if inspect is not None and inspect.machines is not None:
        return inspect.machines.get(name, ())
    return parsed_routes(files.read(_routes_file(directory, name)) or "")


def _changed_routes(directory: Path, inspect: SeedContents) -> Mapping[ClusterName, tuple[PodRoute, ...]]:
    """Return the routes to store: none for removed Nodes. Includes shoots with control planes elsewhere."""
    if inspect.machines is None:
        return {}
    return dict.fromkeys(_route_files(directory), ()) | _by_shoot(inspect.machines)


def _routes_retained(directory: Path) -> dict[ClusterName, tuple[PodRoute, ...]]:
    """Return the stored routes, by shoot."""
    return {name: parsed_routes(files.read(path) or "") for name, path in _route_files(directory).items()}


def _route_files(directory: Path) -> dict[ClusterName, Path]:
    """Return the files of kept ways, by shoot."""
    return {ClusterName(path.name.removesuffix(_ROUTES)): path for path in kept_access.listed(directory, _ROUTES)}


def _by_shoot(machines: Mapping[str, tuple[PodRoute, ...]]) -> dict[ClusterName, tuple[PodRoute, ...]]:
    """Return the routes of shoots with a valid cluster name."""
    return {ClusterName(name): routes for name, routes in machines.items() if LABEL.fullmatch(name)}


def _sources(
    finder: GardenerFinder, existing: Mapping[str, Path], directory: Path, inspect: SeedContents | None
) -> tuple[KubernetesSource, ...]:
    """Return the seed, with the gateways for the shoots, and the shoots."""
    intended = {name: path for name, path in sorted(existing.items()) if is_selected(finder, name)}
    shoots = inspect.shoots if inspect else {}
    return (
        KubernetesSource(
            finder.cluster,
            finder.kubeconfig,
            finder.context,
            found=True,
            node_routes=(),
            classes=finder.classes,
            consents=finder.consents,
        ),
        *(
            KubernetesSource(
                ClusterName(name),
                str(path),
                ContextName(name),
                found=True,
                silent=shoots[name].silent if name in shoots else "",
                node_routes=_node_routes(name, directory, inspect),
                classes=finder.classes,
            )
            for name, path in intended.items()
        ),
    )


def _as_last_found(
    finder: GardenerFinder, existing: Mapping[str, Path], directory: Path, why: KubeError
) -> Found[KubernetesSource]:
    sentence = f"source gardener: which shoots there are can't be found out: {why}"
    if not existing and files.read(_seed(directory)) is None:
        raise SourceError(f"{sentence}; repair that, or take `gardener` out of local-lb:sources")
    sources = _sources(finder, existing, directory, None)
    names = few([str(source.cluster) for source in sources[1:]]) or "none"
    complaint = f"{sentence}; so those count that were found last: {names}"
    return Found(sources, complaints=(complaint,), node_routes=_routes_retained(directory))


def _routes_file(directory: Path, name: str) -> Path:
    """Return where the ways to a shoot's Nodes are kept, for when the seed doesn't answer."""
    return directory / f"{name}{_ROUTES}"


def _seed(directory: Path) -> Path:
    """Return where it is kept which seed the shoots were found on."""
    return directory / "seed"


def _elsewhere(identity: str, directory: Path, existing: Collection[str]) -> str:
    """Explain that another seed had the shoots, and this one may use the same names; empty if it is the same seed."""
    before = files.read(_seed(directory)) if existing else None
    if before in {None, identity}:
        return ""
    return (
        f"source gardener: {few(sorted(existing))} ran on another seed than the one that the kubeconfig leads to "
        f"now, so"
        " those count as last found; correct its `kubeconfig` or `context`,"
        f" or remove {_seed(directory)} if they are gone"
    )


def _missing(finder: GardenerFinder, present: Collection[str]) -> tuple[str, ...]:
    return tuple(
        f"the seed {finder.cluster} has no shoot {name}; make it, or take it out of local-lb:sources"
        for name in sorted(finder.shoots)
        if "*" not in name and name not in present
    )


def _without_routes(finder: GardenerFinder, inspect: SeedContents) -> tuple[str, ...]:
    if inspect.machines is not None or not inspect.shoots:
        return ()
    why = "doesn't let us list pods, so the ways to its shoots' Nodes are unknown; allow its user to list pods"
    return (f"the seed {finder.cluster} {why}",)


def _unreached(finder: GardenerFinder, existing: Collection[str], inspect: SeedContents) -> tuple[str, ...]:
    """Report shoots that aren't up yet, and kubeconfigs with entries that local-lb refuses."""
    intended = {name: inspect.accesses[name] for name in sorted(inspect.accesses) if is_selected(finder, name)}
    young = (
        f"the shoot {name} isn't up yet" for name, way in intended.items() if name not in existing and not way.refused
    )
    refused = (
        f"the kubeconfig of the shoot {name} has {few(way.refused)}; local-lb takes certificates and a token from there"
        f" and nothing else, {'that is passed over' if name in existing else 'so the shoot is not read'}"
        for name, way in intended.items()
        if way.refused
    )
    return (*young, *refused)


class Gardener(FinderType[GardenerFinder]):
    """The seed is asked, again and again while it is watched."""

    def find(self, finder: GardenerFinder, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
        return find_shoots(finder, root, directory, keep=keep)

    def watch(self, finder: GardenerFinder, root: Path, changed: Callable[[str], None], pace: Pace = PACE) -> Polls:
        """Poll every few seconds whether seed, shoots or credentials changed, and at first.

        What would be watched are objects of a whole Shoot each, of which two fields count, and Secrets, one by one.
        """
        api = Memo[Seed]()

        def inspect() -> SeedContents:
            seed = api.of(None, Seed, allowed(finder, root))
            return seed.inspect(partial(is_selected, finder))

        return Polls(finder.cluster, f"{finder.cluster} shoots", inspect, changed, pace)


SOURCE = Gardener()
