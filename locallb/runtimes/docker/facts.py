"""Facts from Docker for a stack with proxies in containers: its containers and their drains, the network, usability.

A container is drained at most once per run, and some containers only serve again after a restart. Every failure is
reported: an unreachable Docker is not one without containers. Not here: creating containers (`engine_api`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from ipaddress import ip_address, ip_network
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import ContainerSettings, PodRouting, PullPolicy, Settings
from locallb.envoy import ADMIN_SOCKET, binary
from locallb.envoy.admin import EnvoyAdmin, EnvoyAdminError
from locallb.host.capabilities import is_rootless, shortcoming_of
from locallb.host.facts import host_facts
from locallb.model.identities import Home, IPAddress, Protocol, ProxyId
from locallb.model.snapshot import HostFacts, Subnet
from locallb.planning.planned import SocketAddress
from locallb.runtimes import handover
from locallb.runtimes.docker.daemon import Document
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.planners import DIRECTORY, PROXY_LABEL, image_of, is_ignored, labelled_owner
from locallb.runtimes.process_runtime import our_pids
from locallb.runtimes.published_ports import split_listener, unpublished_places
from locallb.runtimes.runtime import UnfitRuntimeError
from locallb.storage.proxy_directories import Proxies, is_id

START_SECONDS, BUSY_START_SECONDS = 10.0, 60.0
"""Seconds until the Envoy of a container that was just started must answer, which takes 0.1 to 0.3, and how many it has
while its first process runs: many containers that start at once on few processors take turns."""


def drain_container(observed: Document) -> None:
    """Close the listeners of a running container's Envoy, and leave open connections a moment.

    `observed` is Docker's description of it. Draining once is enough, even if the marker or the container is deleted;
    an Envoy that doesn't answer has no connections worth waiting for.
    """
    directory, process = _directory(observed), int(observed["State"]["Pid"] or 0)
    if directory is not None and process and not was_drained(observed):
        handover.drain(directory, _note(observed), process)


def was_drained(observed: Document) -> bool:
    """Return whether this run of a container was drained: it lives, but listens no longer."""
    directory = _directory(observed)
    return directory is not None and handover.was_notified(directory, _note(observed))


def needs_restart(observed: Document) -> bool:
    """Return whether a container runs and yet can't serve until it is started again.

    It was drained, it has another directory than the proxy's (which was removed and made again), or this host no longer
    holds one of its published ports (their forwarder ended).
    """
    state = observed["State"]
    if not state["Running"] or state.get("Restarting") or state.get("Paused"):
        return was_drained(observed)
    return was_drained(observed) or _has_lost_directory(observed) or any(unpublished_places(published_places(observed)))


def published_places(observed: Document) -> Iterator[SocketAddress]:
    """Return the ports of this host that are published for a container now; none if it doesn't run."""
    for inner, bindings in (observed["NetworkSettings"].get("Ports") or {}).items():
        protocol = Protocol(inner.rpartition("/")[2].upper())
        yield from ((ip_address(binding["HostIp"]), int(binding["HostPort"]), protocol) for binding in bindings or ())


def lacks_network(observed: Document, network: str) -> bool:
    """Return whether a container was taken from a network, which is given by its name or id."""
    connected = (observed["NetworkSettings"].get("Networks") or {}).items()
    return not any(network in {name, existing.get("NetworkID")} for name, existing in connected)


def _has_lost_directory(observed: Document) -> bool:
    directory, pid = _directory(observed), int(observed["State"]["Pid"] or 0)
    if directory is None or not pid:
        return False
    try:
        mounted = Path(f"/proc/{pid}/root{DIRECTORY}").stat()
    except OSError:  # most often for want of a right: then its socket tells, once there should be one
        began = time.time() - _start_seconds(observed)
        return not os.path.lexists(directory / ADMIN_SOCKET) and started_before(observed, began)
    try:
        return not os.path.samestat(mounted, directory.stat())
    except OSError:
        return True


def started_before(observed: Document, at: float) -> bool:
    """Return whether the run of a container began before that time (Unix); False if its start is unknown."""
    try:
        return datetime.fromisoformat(str(observed["State"]["StartedAt"])).timestamp() < at
    except (ValueError, TypeError):
        return False


def _directory(observed: Document) -> Path | None:
    proxy = (observed["Config"].get("Labels") or {}).get(PROXY_LABEL, "")
    return Proxies.ours().path(proxy) if is_id(proxy) else None


def _note(observed: Document) -> str:
    return f"{observed['Id']} {observed['State']['StartedAt']}\n"


_FIXED = ("IPv4Address", "IPv6Address")


def read_facts(home: Home, settings: Settings, pids: Collection[int], containers: Containers) -> HostFacts:
    """Find out what this host and an engine allow. Raises UnfitRuntimeError, ClientError."""
    network = settings.container.network
    contained = read_contained(containers, home)
    facts = _without_ours(home, settings, pids, contained)
    info, mapped = containers.info(), settings.publishes and settings.port_mapping
    if not is_rootless(info):  # whose root is this user, in this user's group, and may bind what this user may
        facts = replace(facts, group=os.getegid(), unprivileged_port_start=0)
    if shortcoming := shortcoming_of(settings.runtime, info, containers.host, mapped=mapped):
        raise UnfitRuntimeError(shortcoming)
    if settings.pod_routes is PodRouting.CONTAINER and is_rootless(info):
        name = containers.engine.name
        raise UnfitRuntimeError(
            f"local-lb:podRoutes container: the {name} at {containers.host} is rootless and makes no routes; use root's"
            f" {name}, or remove the key"
        )
    _require_image(containers, settings.container, facts)
    return replace(facts, subnets=read_subnets(containers, network, home)) if network else facts


def facts_without_engine(home: Home, settings: Settings, pids: Collection[int]) -> HostFacts:
    """Find out what this host allows where the engine can't be asked, for commands that change nothing."""
    return replace(_without_ours(home, settings, pids, Contained()), group=os.getegid(), unprivileged_port_start=0)


def _without_ours(home: Home, settings: Settings, pids: Collection[int], contained: Contained) -> HostFacts:
    """Look at this host, where no socket of this stack's containers counts as another's."""
    facts = host_facts(settings.pools, {*our_pids(home, pids), *contained.pids}, strict=settings.publishes)
    bound = {*_bound(home, contained.silent), *contained.places}
    sockets = tuple(socket for socket in facts.sockets if (socket.address, socket.port, socket.protocol) not in bound)
    return replace(facts, envoy=binary.installed().version, sockets=sockets)


class Contained(Struct, frozen=True):
    """What this stack's containers hold."""

    pids: frozenset[int] = frozenset()
    """Their processes, as far as they run."""
    places: frozenset[SocketAddress] = frozenset()
    """The host's ports that Docker publishes for them."""
    silent: frozenset[str] = frozenset()
    """Proxies with a paused or stopped container: they don't answer."""


def _require_image(containers: Containers, settings: ContainerSettings, host: HostFacts) -> None:
    """Refuse an image that isn't there where none may be fetched. Raises UnfitRuntimeError, ContainersError."""
    image = image_of(settings, host)
    if settings.pull is PullPolicy.NEVER and not containers.has_image(image):
        raise UnfitRuntimeError(
            f"local-lb:image: {image} isn't there, and pullPolicy Never forbids to fetch it:"
            f" `{containers.engine.command} pull` it, let {containers.engine.image} make one, or choose another policy"
        )


def read_contained(containers: Containers, home: Home) -> Contained:
    """Find this stack's containers. Raises ContainersError."""
    listed = [container for container in containers.labelled(PROXY_LABEL) if home_of(container) == home]
    observed = [inspected for container in listed if (inspected := containers.inspect(str(container["Id"])))]
    pids = {int(container["State"]["Pid"]) for container in observed}
    places = frozenset(place for container in observed for place in published_places(container))
    silent = (container["Config"]["Labels"][PROXY_LABEL] for container in observed if not answers(container))
    return Contained(frozenset(pids - {0}), places, frozenset(silent))


def start_seconds(observed: Document | None) -> float | None:
    """Return how many seconds the Envoy of a container has to answer after its start; None if there is none."""
    return None if observed is None else _start_seconds(observed)


def _start_seconds(observed: Document) -> float:
    return BUSY_START_SECONDS if answers(observed) and not observed.get("RestartCount") else START_SECONDS


def answers(observed: Document) -> bool:
    """Return whether the Envoy of a container may answer: it runs and isn't paused."""
    return bool(observed["State"]["Running"]) and not observed["State"].get("Paused")


def read_subnets(containers: Containers, network: str, home: Home) -> tuple[Subnet, ...]:
    """Read the subnets of the network on which ports are published, with the owners of claimed addresses.

    Raises UnfitRuntimeError, ContainersError.
    """
    inspected = containers.network(network)
    if inspected is None:
        raise UnfitRuntimeError(
            f"local-lb:network: {containers.engine.name} has no network {network}; make a kind cluster or run"
            f" `{containers.engine.command} network create {network}`, or name another one: {{publish: NETWORK}}"
        )
    configured = (inspected.get("IPAM") or {}).get("Config") or ()
    connected, names = containers.connected(network), {network, inspected.get("Name")}
    return tuple(_subnet(config, connected, names, home) for config in configured if config.get("Subnet"))


def _subnet(config: Mapping[str, str], connected: Iterable[Document], names: Collection[object], home: Home) -> Subnet:
    gateway, handed_out = config.get("Gateway"), config.get("IPRange")
    subnet = Subnet(
        ip_network(config["Subnet"], strict=False),
        ip_address(gateway.partition("/")[0]) if gateway else None,
        ip_network(handed_out, strict=False) if handed_out else None,
    )
    claimed, chosen = set[IPAddress](), set[ProxyId]()
    for container in connected:
        has = {address for address in _addresses_of(container, names) if address in subnet.network}
        fixed = {address for address in has if is_ignored(address, subnet)}
        if home_of(container) != home:
            claimed |= fixed
        elif has and not fixed:
            chosen.add(ProxyId(container["Labels"].get(PROXY_LABEL, "")))
    return replace(subnet, claimed=frozenset(claimed), chosen=frozenset(chosen))


def _addresses_of(listed: Document, names: Collection[object]) -> Iterator[IPAddress]:
    """Yield a container's addresses on a network: its current ones and the fixed ones that it has when it runs."""
    networks = (listed.get("NetworkSettings") or {}).get("Networks") or {}
    for endpoint in (endpoint for name, endpoint in networks.items() if name in names):
        fixed = endpoint.get("IPAMConfig") or {}
        texts = (endpoint.get("IPAddress"), endpoint.get("GlobalIPv6Address"), *map(fixed.get, _FIXED))
        yield from (ip_address(text) for text in texts if text)


def home_of(listed: Document) -> Home | None:
    """Return the home of the stack that owns a listed container."""
    owner = labelled_owner(listed.get("Labels") or {})
    return owner.home if owner else None


def _bound(home: Home, silent: Collection[str]) -> set[SocketAddress]:
    """Ask this stack's proxies, but for `silent` ones, what they have bound: sockets' owners may be hidden."""
    bound: set[SocketAddress] = set()
    for directory in Proxies.ours().list():
        if directory.owner and directory.owner.home == home and directory.path.name not in silent:
            with suppress(EnvoyAdminError):
                bound.update(split_listener(name) for name in EnvoyAdmin(directory.path).listeners())
    return bound
