"""Stale datagrams: received while their port had no listener, and never to be delivered.

Envoy keeps the socket of a removed UDP listener until its drain time is over, and the kernel queues there what clients
send. A listener that comes back takes the socket over with the queue. So it is made without an upstream first, which
reads the queue and drops it. Pure: texts in, texts out; `push` takes them.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from typing import TypeAlias

from locallb.envoy.document import Message, text, typed
from locallb.envoy.rollout import document
from locallb.model.fields import JsonObject, object_of, objects_of
from locallb.model.identities import IPAddress

UdpSocket: TypeAlias = tuple[IPAddress, int]

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


def udp_sockets(listeners: str) -> frozenset[UdpSocket]:
    """Return where the listeners of a file take datagrams of no connection: all of UDP but HTTP/3."""
    resources = objects_of(document(listeners).get("resources"))
    return frozenset(socket for resource in resources if (socket := _socket(resource)))


def dropping(listeners: str, sockets: Collection[UdpSocket]) -> str:
    """Make the same file under another version, in which the listeners at `sockets` drop what they read."""
    response = document(listeners)
    resources = [
        {**resource, "listener_filters": [_DROPPING]} if _socket(resource) in sockets else resource
        for resource in objects_of(response.get("resources"))
    ]
    return text({**response, "version_info": f"{response.get('version_info', '')}{_AND}", "resources": resources})


def _socket(listener: JsonObject) -> UdpSocket | None:
    place = object_of(object_of(listener.get("address")).get("socket_address"))
    if place.get("protocol") != "UDP" or "filter_chains" in listener:
        return None
    return ip_address(str(place.get("address"))), int(str(place.get("port_value")))
