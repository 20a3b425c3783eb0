"""Writes Envoy's files, and waits until the running Envoy has accepted or rejected them.

Stale datagrams, received while their UDP port had no listener, are dropped before a listener serves the port again.

Not here: the order of the files (`rollout`), and why Envoy refuses one (`validation`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from itertools import groupby
from pathlib import Path
from typing import TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.envoy import rollout
from locallb.envoy.admin import EnvoyAdmin, EnvoyAdminError, Subscription, Subscriptions, pauses, size_of_files
from locallb.envoy.bootstrap import heap_bounds, is_udp_only
from locallb.envoy.document import Message, settling_time, text, typed
from locallb.envoy.http_policies import may_fail
from locallb.envoy.listeners import CLOSED, GATE, gate, holds_clients
from locallb.envoy.rollout import document
from locallb.envoy.validation import NoVerdictError, reported_refused, why_refused
from locallb.model.errors import refusal
from locallb.model.fields import JsonObject, object_of, objects_of
from locallb.model.identities import IPAddress, Protocol, place
from locallb.model.serving import ProxyTraits
from locallb.storage import files

UdpSocket: TypeAlias = tuple[IPAddress, int]
_Answer = TypeVar("_Answer")

_NOWHERE = "none"
"""A cluster that there isn't: datagrams to it are dropped."""
_DROPPING: Message = {
    "name": "envoy.filters.udp_listener.udp_proxy",
    "typed_config": typed(
        "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig",
        stat_prefix="udp",
        matcher={
            "on_no_match": {
                "action": {
                    "name": "route",
                    "typed_config": typed("envoy.extensions.filters.udp.udp_proxy.v3.Route", cluster=_NOWHERE),
                }
            }
        },
    ),
}
_AND = "+dropping"
_UDP = '"UDP"'
"""In every file with such a listener: others, of a thousand ports, aren't parsed to find none."""


def udp_sockets(listeners: str, *, http3: bool = False) -> frozenset[UdpSocket]:
    """Return where the listeners of a file take datagrams of no connection: all of UDP; with `http3` also that."""
    resources = objects_of(document(listeners).get("resources"))
    return frozenset(socket for resource in resources if (socket := _socket(resource, http3=http3)))


def dropping(listeners: str, sockets: Collection[UdpSocket]) -> str:
    """Make the same file under another version, in which the listeners at `sockets` drop what they read. Pure.

    Envoy keeps the socket of a removed UDP listener until its drain time is over, and the kernel queues clients'
    datagrams there. A listener that is added again takes the socket over with the queue, which must never be delivered.
    So it is made without an upstream first, which reads the queue and drops it.
    """
    response = document(listeners)
    resources = [
        {**resource, "listener_filters": [_DROPPING]} if _socket(resource) in sockets else resource
        for resource in objects_of(response.get("resources"))
    ]
    return text({**response, "version_info": f"{response.get('version_info', '')}{_AND}", "resources": resources})


def _socket(listener: JsonObject, *, http3: bool = False) -> UdpSocket | None:
    place = object_of(object_of(listener.get("address")).get("socket_address"))
    if place.get("protocol") != "UDP" or ("filter_chains" in listener and not http3):
        return None
    return ip_address(str(place.get("address"))), int(str(place.get("port_value")))


DOUBTFUL, _DOUBTFUL = 0.1, 5
"""Seconds after which Envoy may have refused a file of which it tells no outcome, if it answered so many times since:
it looks at files between two answers."""
_SELDOM = 3
"""Questions for the version of which one is followed by that for refusals: those are rare."""


def roll_out(directory: Path, steps: Iterable[rollout.RolloutStep], mode: int) -> None:
    """Take the steps; between them a running Envoy gets the time to follow, once for all routes."""
    series = Series(directory, mode)
    for of_routes, group in groupby(steps, key=_writes_routes):
        if of_routes:
            series.put_routes([step for step in group if isinstance(step, rollout.Write)])
            continue
        for step in group:
            match step:
                case rollout.Write():
                    series.put(step)
                case rollout.Remove(name=name):
                    files.remove(directory / name)
                case rollout.Pause(seconds=seconds) if EnvoyAdmin(directory).answers():
                    time.sleep(seconds)


def _writes_routes(step: rollout.RolloutStep) -> bool:
    return isinstance(step, rollout.Write) and step.name.startswith(rollout.ROUTES)


class Series(Struct):
    """Files that the Envoy in a directory gets one after the other; what it had refused before is asked once."""

    directory: Path
    mode: int
    _attempts: Subscriptions | None = None

    def put(self, step: rollout.Write) -> None:
        """Write a file; where it has a version and an Envoy runs, give that the time to follow."""
        if step.version and self._attempts is None:
            self._attempts = _attempts(self.directory)
        if step.version and step.name == rollout.LISTENERS and self._attempts is not None:
            self._drop_stale_datagrams(step)
        before = self._attempts
        self._write(step)
        if not step.version or before is None:
            return
        if not self._follow(step, _of(step.name, before).rejected):
            self._attempts = None
        elif step.clusters:
            self._wait(lambda: _answer(self.directory, lambda admin: step.clusters.isdisjoint(admin.warming()), True))

    def _drop_stale_datagrams(self, step: rollout.Write) -> None:
        """Have Envoy read away what came to UDP ports of these listeners while it didn't serve them."""
        if _UDP not in step.text:
            return
        before = files.read_shared(self.directory / step.name) or ""
        added = udp_sockets(step.text) - udp_sockets(before)
        stale = added & _answer(self.directory, _given_up, frozenset[UdpSocket]()) if added else frozenset()
        if not stale:
            return
        created = _created(self.directory) + len(stale)
        self._write(replace(step, text=dropping(step.text, stale)))
        self._wait(lambda: _created(self.directory) >= created)
        self._attempts = _attempts(self.directory)  # it may have refused others of these listeners

    def put_routes(self, steps: Sequence[rollout.Write]) -> None:
        """Write files of routes, which know nothing of each other, and give Envoy the time to take those it had."""
        for step in steps:
            self._write(step)
        wanted = {step.version for step in steps if step.version}
        self._wait(
            lambda: not wanted or _answer(self.directory, lambda admin: wanted <= admin.routes(), True),
            EnvoyVerdict(self.directory).is_refused,
        )

    def _write(self, step: rollout.Write) -> None:
        files.write(self.directory / step.name, step.text, mode=self.mode)

    def _follow(self, step: rollout.Write, before: int) -> bool:
        """Wait until Envoy runs this version or has refused it; what it refused is for Reachable to tell."""
        requested = 0

        def ended() -> bool:
            nonlocal requested
            requested += 1
            return requested % _SELDOM == 0 and _refused(self.directory, step.name) != before

        return self._wait(lambda: _runs(self.directory, step), ended)

    def _wait(self, is_done: Callable[[], bool], ended: Callable[[], bool] = lambda: False) -> bool:
        """Wait until something is `is_done`, and return whether it was before it `ended` or took too long."""
        deadline, pause = time.monotonic() + settling_time(size_of_files(self.directory)), pauses()
        while time.monotonic() < deadline:
            if is_done():
                return True
            if ended():
                return False
            time.sleep(next(pause))
        return False


class EnvoyVerdict(Struct):
    """Asks Envoy once, when a change takes longer than usual, whether it refuses the files in a directory."""

    directory: Path
    cause: str = ""
    """Why it does; empty as long as that isn't known."""
    _queries_at: float = field(default_factory=lambda: time.monotonic() + DOUBTFUL)
    _answers: int = 0
    _requested: bool = False

    def is_refused(self) -> bool:
        """Return whether it does, as far as that is known now; called after each answer of the running Envoy."""
        self._answers += 1
        with suppress(NoVerdictError):
            if self._answers == 1:
                self.cause = reported_refused(lambda: texts(self.directory), self.directory)
            elif self._answers >= _DOUBTFUL and time.monotonic() > self._queries_at and not self._requested:
                self._requested = True
                self.cause = why_refused(texts(self.directory), self.directory)
        return bool(self.cause)


def close_gate(directory: Path, mode: int) -> None:
    """Write the gate of a proxy's logs, closed, where there is none yet."""
    if not (directory / GATE).exists():
        files.write(directory / GATE, gate(CLOSED), mode=mode)
    files.set_mode(directory / GATE, mode)


def texts(directory: Path) -> Mapping[str, str]:
    """Read Envoy's files in a proxy's directory, by name. Raises FilesError."""
    try:
        names = sorted(entry.name for entry in directory.iterdir() if rollout.NAME.fullmatch(entry.name))
    except OSError as error:
        raise files.FilesError(f"{directory} can't be read: {refusal(error)}") from error
    read = {name: files.read_shared(directory / name) for name in names}
    return {name: text for name, text in read.items() if text is not None}


def _answer(directory: Path, question: Callable[[EnvoyAdmin], _Answer], otherwise: _Answer) -> _Answer:
    """Return what Envoy answers; `otherwise` where none does."""
    try:
        return question(EnvoyAdmin(directory))
    except EnvoyAdminError:
        return otherwise


def _runs(directory: Path, step: rollout.Write) -> bool:
    """Return whether Envoy runs this version of a file, or none answers."""
    return _answer(directory, lambda admin: _of(step.name, admin.active()).version == step.version, True)


def _given_up(admin: EnvoyAdmin) -> frozenset[UdpSocket]:
    """Return the UDP sockets that Envoy has kept of listeners that are gone."""
    remaining = admin.draining() - admin.places()
    return frozenset((address, port) for address, port, protocol in remaining if protocol is Protocol.UDP)


def _created(directory: Path) -> int:
    """Count the listeners that Envoy has begun to serve so far."""
    return _answer(directory, lambda admin: admin.created(), 0)


def _attempts(directory: Path) -> Subscriptions | None:
    """Ask Envoy what became of files; None where none answers."""
    return _answer(directory, lambda admin: admin.attempts(), None)


def _refused(directory: Path, name: str) -> int | None:
    """Ask Envoy how often it has refused a file; None where none answers."""
    attempts = _attempts(directory)
    return None if attempts is None else _of(name, attempts).rejected


def _of(name: str, subscriptions: Subscriptions) -> Subscription:
    return subscriptions.lds if name == rollout.LISTENERS else subscriptions.cds


def traits_of(files: Mapping[str, str], released: Iterable[str] = ()) -> ProxyTraits:
    """Return the traits of a proxy; `released` are places of UDP listeners that it has given up.

    A refresh that found files missing has no bootstrap: nothing shows its traits then.
    """
    listeners, bootstrap = files.get(rollout.LISTENERS, ""), files.get(rollout.BOOTSTRAP)
    datagrams = frozenset(released)
    if '"UDP"' in listeners:
        # One of every address is in a container of its own.
        sockets = (socket for socket in udp_sockets(listeners) if not socket[0].is_unspecified)
        datagrams = datagrams.union(place(*socket) for socket in sockets)
    return ProxyTraits(
        holds_clients(listeners),
        may_fail(listeners),
        None if bootstrap is None else heap_bounds(bootstrap),
        None if bootstrap is None else is_udp_only(bootstrap),
        datagrams,
    )
