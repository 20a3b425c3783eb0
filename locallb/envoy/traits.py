"""Traits of a proxy that it keeps while it runs, from its files as any version wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from locallb.envoy import rollout
from locallb.envoy.bootstrap import heap_bounds, is_udp_only
from locallb.envoy.http_policies import may_fail
from locallb.envoy.listeners import holds_clients
from locallb.envoy.push import udp_sockets
from locallb.model.identities import place
from locallb.model.serving import ProxyTraits


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
