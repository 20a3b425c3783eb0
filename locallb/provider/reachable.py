"""Reachable: the proof that a proxy serves its planned listeners, before a status publishes them.

Envoy never tries again to bind a listener that failed, except when its file is renamed into place once more, even with
the same text: so one attempt is made here, and one more at every `up` until the port is free.

`leave` removes a stack's proxies from a state home that the stack leaves. Not here: the state home to which a stack
belongs (`sources.stack_home`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from locallb.envoy import push, rollout
from locallb.envoy.admin import EnvoyAdmin, EnvoyAdminError, Subscription, pauses, size_of_files
from locallb.envoy.document import settling_time
from locallb.envoy.fragments import part_version
from locallb.host.sockets import (
    LISTEN,
    SocketError,
    connect,
    holder,
    holding_proxies,
    holding_sockets,
    rows,
    split_place,
    takes_connection,
)
from locallb.ledger.ledger import Ledger
from locallb.model.desired import ADDRESS_CLAIMS, CONFIG, PORTS, Resource
from locallb.model.errors import ClientError
from locallb.model.identities import Home, PartId, Protocol, ProxyId, RunIdentity
from locallb.model.texts import NAME_SERVER, owner_from
from locallb.provider.fragments import (
    ObservedPart,
    one_pass,
    read_healthy,
    read_part,
    reread,
    rewrite_listeners,
)
from locallb.resources.codec import is_unknown
from locallb.resources.properties import ListenerState, ReachableInputs, ReachableState, Versions
from locallb.resources.resource_type import (
    InputChanges,
    ProviderError,
    ResourceType,
    changed,
    grown,
    id_faults,
    proxy_faults,
)
from locallb.runtimes import published_ports
from locallb.runtimes.runtime import runtime, runtimes
from locallb.storage import paths
from locallb.storage.proxy_directories import Proxies, ProxyDirectory, is_id


def leave(resources: Iterable[Resource], home: Home, state_home: Path) -> int:
    """End the proxies of stack `home` below `state_home`, and remove what is theirs there; return how many ran.

    They can then be created in another state home. Addresses stay claimed where all users share the ledger. Raises
    ClientError if one can't be ended, such as another user's.
    """
    existing = tuple(resources)
    ended = sum(runtime.leave(existing, home, state_home) for runtime in runtimes())
    for resource in existing:
        with suppress(ClientError, OSError, KeyError, ValueError, TypeError):  # closed to this user, and harmless
            if resource.type == CONFIG:
                _remove(Proxies(state_home / "proxies"), str(resource.inputs["proxy"]), home)
            elif resource.type in ADDRESS_CLAIMS:
                _release(resource)
    return ended


def _remove(proxies: Proxies, proxy: str, home: Home) -> None:
    directory = proxies.find(proxy) if is_id(proxy) else None
    if directory and directory.owner and directory.owner.home == home:
        proxies.remove(directory.id)


def _release(resource: Resource) -> None:
    """Release a claim in a ledger that doesn't count here."""
    ledger, owner = Path(str(resource.outputs["claim"])), resource.inputs["owner"]
    if ledger != paths.ledger_directory() and isinstance(owner, dict):
        address, mapped = ip_address(str(resource.inputs["address"])), resource.type == PORTS
        Ledger(ledger).release(address, owner_from(owner), mapped=mapped)


PROBE_TIMEOUT = 2.0
TRIAL_TIMEOUT = 0.05
"""Seconds for all trials of backends: longer, no client is to wait for one of them either."""
ANSWER_TIMEOUT, _ANSWER_PAUSE = 1.0, 0.1
"""Seconds that backends of another port get to be opened by kube-proxy, where the Service was published as serving."""
MOVE_TIMEOUT = 6.0
"""Seconds that a port gets to come from another proxy of the stack: a handover takes half of that."""
_MOVE_PAUSE = 0.02
_RELEASE_REMEDY = "it gave the port up and keeps it while clients use it, ten minutes at most; end their connections"
SERVING = "serving"
WAITING = "no backend of some port has taken a connection yet"
_InspectPart: TypeAlias = Callable[[Path, PartId, Collection[str]], ObservedPart]


class _Sighting(Struct, frozen=True):
    """What Envoy says at one moment."""

    lds: Subscription
    versions: Versions
    """Active versions: of the proxy as a whole, or of the fragment."""
    bound: frozenset[str]
    failed: Mapping[str, str]

    def proves(self, new: ReachableInputs) -> bool:
        return self.versions == new.versions and self.bound.issuperset(new.listeners)


class Reachable(ResourceType[ReachableInputs, ReachableState]):
    """Waits, and tells exactly what is missing."""

    replaced_for = frozenset({"proxy", "part"})
    """Prove again whatever changes; probes alone prove nothing new and change nothing."""

    def shown(self, changed: frozenset[str]) -> frozenset[str]:
        """Show no listeners that ports are, and no versions of what is proven."""
        return changed - {"listeners", "probes", "versions"}

    def check(self, new: ReachableInputs) -> Iterator[tuple[str, str]]:
        """Accept places of probes that can be connected to."""
        yield from proxy_faults(new.proxy)
        yield from id_faults("part", new.part) if new.part else ()
        for place in () if is_unknown(new.probes) else new.probes:
            try:
                split_place(place)
            except ValueError:
                yield "probes", f"{place!r} isn't <address>:<port>"

    def diff(self, old: ReachableState, new: ReachableInputs) -> InputChanges:
        """Compare without the upstreams: they are looked at when something else changes."""
        return replace(super().diff(old, new), changed=changed(old, new) - {"upstreams"})

    def preview_outputs(self, new: ReachableInputs, old: ReachableState | None) -> Mapping[str, object]:
        """Foresee that backends take connections: nothing changes for the rest of a preview if they don't."""
        del new, old
        return {"waiting": ""}

    def create(self, new: ReachableInputs) -> tuple[str, ReachableState]:
        """Prove it, and connect once to each probe."""
        return new.proxy, self._prove(new, new.probes, new.listeners, 0.0)

    def read(self, state: ReachableState) -> ReachableState | None:
        """Check that the proof still holds, and whether what was waited for has come."""
        try:
            run = RunIdentity.parse(state.process)
            runs = runtime(run.runtime)
            silent = runs.is_drained if state.part else runs.cannot_serve
            if silent(run, _directory(state)):
                return None
            proven = _is_proven(_directory(state), state, reread)
            if not proven or (state.published and any(published_ports.unpublished(state.listeners))):
                return None
            return replace(state, waiting=_waiting(_directory(state), state)) if state.waiting else state
        except ClientError:  # neither Envoy nor what it runs in can be asked
            return None

    def one_pass(self) -> AbstractContextManager[None]:
        """Ask each shared proxy once for all its parts."""
        return one_pass()

    def leaves_nothing(self, state: ReachableState) -> bool:
        """Return True: a proof leaves nothing."""
        del state
        return True

    def update(self, old: ReachableState, new: ReachableInputs) -> ReachableState:
        """Prove it again, and connect to places that are published for the first time."""
        existing = old.listeners if old.process == new.process else ()
        arriving = tuple(name for name in new.listeners if name not in existing)
        served_before = not old.waiting and set(old.listeners).issuperset(new.listeners)
        timeout = None if served_before else 0.0 if old.waiting else ANSWER_TIMEOUT
        return self._prove(new, tuple(place for place in new.probes if place not in old.probes), arriving, timeout)

    def delete(self, state: ReachableState) -> None:
        """Forget the proof. An Envoy that ends is drained here: before what leads to its backends goes as well."""
        directory = Proxies.ours().find(state.proxy)
        if not state.part and not (directory and directory.owner and self.belongs_to_copied_project(directory.owner)):
            run = RunIdentity.parse(state.process)
            runtime(run.runtime).drain(run)

    def _prove(
        self, new: ReachableInputs, probes: tuple[str, ...], arriving: tuple[str, ...], timeout: float | None
    ) -> ReachableState:
        """Prove it; connect to `probes`, or to `arriving` where the ports are published.

        Backends get `timeout` seconds to take a connection; None: it is known that they do.
        """
        run = RunIdentity.parse(new.process)
        try:
            runtime(run.runtime).await_start(run, _directory(new))
            _await(_directory(new), new)
            if new.published:
                published_ports.prove(new.listeners, EnvoyAdmin(_directory(new)), arriving)
            for place in () if new.published else probes:
                _probe(place)
            waiting = "" if timeout is None else _waiting(_directory(new), new, timeout)
        except EnvoyAdminError as error:
            raise ProviderError(runtime(run.runtime).unanswered(run, str(error))) from error
        ports = tuple(ListenerState(listener, SERVING, "") for listener in new.listeners)
        return grown(self.state, new, ports=ports, waiting=waiting)


def _await(directory: Path, new: ReachableInputs) -> None:
    """Wait until the proof holds. Raises ProviderError; a listener that can't be bound is tried once more before."""
    if new.part and _is_proven(directory, new):
        return
    settling, pause = settling_time(size_of_files(directory)), pauses()
    deadline, until = time.monotonic() + settling, time.monotonic() + MOVE_TIMEOUT
    tried_at: int | None = None
    verdict = push.EnvoyVerdict(directory)
    while not (sighting := _inspect(directory, new)).proves(new):
        lds = sighting.lds
        refused = [name for name in sighting.failed if not new.part or name in new.listeners] if lds.settled else []
        if refused and (tried_at is None or lds.attempts > tried_at):
            moved = _await_move(directory, refused, until)
            if not moved and tried_at is not None:
                raise ProviderError(_complaint(directory.name, sighting, new))
            tried_at, deadline = lds.attempts, time.monotonic() + settling
            rewrite_listeners(directory)
        elif time.monotonic() > deadline:
            raise ProviderError(_complaint(directory.name, sighting, new))
        elif lds.attempts and lds.settled and not sighting.failed and verdict.is_refused():
            raise ProviderError(f"proxy {directory.name}: Envoy refuses its configuration: {verdict.cause}")
        time.sleep(next(pause))


def _waiting(directory: Path, new: ReachableInputs, timeout: float = 0.0) -> str:
    """Return what is waited for; empty if a backend of each upstream takes connections within that time."""
    until = time.monotonic() + timeout
    while not _all_answer(directory, new):
        if time.monotonic() >= until:
            return WAITING
        time.sleep(_ANSWER_PAUSE)
    return ""


def _all_answer(directory: Path, new: ReachableInputs) -> bool:
    """Return whether a backend of each upstream takes connections, as far as that can be seen.

    Clusters are only used once each backend has been checked. A container's network leads elsewhere than this host's.
    """
    healthy = read_healthy(directory) if new.upstreams else {}
    until = time.monotonic() + TRIAL_TIMEOUT
    for name, *places in map(str.split, new.upstreams):
        tried = () if new.published else places
        if not healthy.get(name, True) or (tried and not _takes_any(tried, until)):
            return False
    return True


def _takes_any(places: Iterable[str], until: float) -> bool:
    return any(takes_connection(place, until - time.monotonic()) for place in places if time.monotonic() < until)


def _await_move(directory: Path, listeners: Collection[str], until: float) -> bool:
    """Wait while another proxy of the stack has ports of these listeners; return whether one had, before `until`.

    The same update may take them from it. Whose sockets they are is only read, from all of /proc, if they changed.
    """
    others, is_held, before = False, False, frozenset[str]()
    while time.monotonic() < until and (sockets := _sockets(listeners)):
        if sockets != before:
            before, is_held = sockets, any(_in_stack(directory, name) for name in listeners)
        if not is_held:
            break
        others = True
        time.sleep(_MOVE_PAUSE)
    return others


def _sockets(listeners: Iterable[str]) -> frozenset[str]:
    """Return what keeps the ports of listeners from being bound; nothing where that can't be read."""
    with suppress(SocketError):
        return frozenset(
            inode for name in listeners for inode in holding_sockets(*published_ports.split_listener(name))
        )
    return frozenset()


def _in_stack(directory: Path, listener: str) -> bool:
    """Return whether another proxy of the same stack has the port of a listener."""
    proxies = Proxies.ours()
    own = proxies.find(ProxyId(directory.name))
    found = [proxies.find(ProxyId(each.name)) for each in holding_proxies(*published_ports.split_listener(listener))]
    return any(
        each and own and each.id != own.id and each.owner and own.owner and each.owner.home == own.owner.home
        for each in found
    )


def _is_proven(directory: Path, new: ReachableInputs, inspect: _InspectPart = read_part) -> bool:
    """Return whether the proof holds; of a part without Envoy's statistics, which are those of a thousand others."""
    if new.part:
        return _inspect_part(directory, new, Subscription(), inspect).proves(new)
    return _inspect(directory, new).proves(new)


def _inspect_part(
    directory: Path, new: ReachableInputs, lds: Subscription, inspect: _InspectPart = read_part
) -> _Sighting:
    observed = inspect(directory, new.part, new.listeners)
    versions = Versions(part_version(observed.listeners), part_version(observed.clusters))
    return _Sighting(lds, versions, frozenset(observed.listeners), observed.failed)


def _inspect(directory: Path, new: ReachableInputs) -> _Sighting:
    admin = EnvoyAdmin(directory)
    claimed = admin.versions()
    if new.part:
        return _inspect_part(directory, new, claimed.lds)
    failed = admin.failed_listeners() if claimed.lds.rejected else {}
    version = claimed.lds.version
    if rollout.has_referred(new.versions.lds):
        wanted = rollout.referred(push.texts(directory))
        version = rollout.with_referred(version, wanted if wanted <= admin.referred() else ["missing"])
    return _Sighting(claimed.lds, Versions(version, claimed.cds.version), admin.listeners(), failed)


def _complaint(proxy: str, sighting: _Sighting, new: ReachableInputs) -> str:
    """Return what is missing in one sentence, and what works all the same."""
    missing = [name for name in new.listeners if name not in sighting.bound or name in sighting.failed]
    unexpected = () if new.part else sighting.failed.keys() - {*new.listeners}  # HTTP/3, which nobody waits for by name
    remedy = _remedy(Proxies.ours().find(new.proxy))
    directory = Proxies.ours().path(new.proxy)
    faults = [
        _fault(name, sighting.failed.get(name, ""), remedy, directory) for name in (*missing, *sorted(unexpected))
    ]
    if not faults:
        has = f"listeners {sighting.versions.lds or 'none'}, clusters {sighting.versions.cds or 'none'}"
        wants = f"listeners {new.versions.lds}, clusters {new.versions.cds}"
        faults = [f"proxy {proxy} didn't take its configuration (has {has}; wants {wants}): see its envoy.log"]
    serving = [name for name in new.listeners if name not in missing]
    return "; ".join(faults) + (f"; serving all the same: {', '.join(serving)}" if serving else "")


def _remedy(proxy: ProxyDirectory | None) -> str:
    """Return how to get out of the way of a process that has the port."""
    if proxy and proxy.name == NAME_SERVER:
        return "give local-lb:dns another address, or `embedded: true` for one of the stack's own"
    return "end it or change the Service's port"


def _fault(name: str, reason: str, remedy: str, directory: Path) -> str:
    if "in use" not in reason:
        return f"{name} isn't served: {reason or 'Envoy has no such listener'}"
    party = holder(*published_ports.split_listener(name)) or "a process of another user"
    if name.endswith(f"/{Protocol.UDP}") and _in_stack(directory, name):
        remedy = _RELEASE_REMEDY
    return f"{name} isn't served: the port is in use by {party}; {remedy}, then run up again"


def _probe(place: str) -> None:
    """Connect to what Envoy says that it has bound; from a pod it isn't seen, and Envoy's word must do."""
    address, port = split_place(place)
    try:
        connect(address, port, PROBE_TIMEOUT)
    except SocketError as error:
        if not any((row.address, row.port) == (address, port) for row in rows(Protocol.TCP, LISTEN)):
            return
        raise ProviderError(f"{place} is bound, but a client of this host can't reach it: {error}") from error


def _directory(inputs: ReachableInputs) -> Path:
    return Proxies.ours().path(inputs.proxy)
