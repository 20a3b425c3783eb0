"""Listeners: the sockets that clients reach, the upstream of each connection or datagram, and DNS answers.

A listener's name is `serving.Listener.name`, the word for it in every message. Nothing here names a backend, so that
backends come and go without touching a listener.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import get_mixed_type_key

from locallb.envoy import overload
from locallb.envoy.access_logs import logged
from locallb.envoy.document import KEEPALIVE, Message, socket_address, typed
from locallb.envoy.faults import faulty
from locallb.model.http.serving import HttpListener
from locallb.model.identities import Family, IPNetwork, Protocol
from locallb.model.naming import upstream_name
from locallb.model.serving import Listener, NameListener, ServedName

_MAX_DATAGRAM, _FORMER_MAX_DATAGRAM = 65_535, 9000
"""Bytes of a datagram that pass whole, both ways: IP's own bound is below; and before proxies were bounded."""
CONNECT_ATTEMPTS = 4
"""Upstream connects for one client connection: up to three dead backends are passed over."""
PATIENT_ATTEMPTS = 12
"""The same where clients are held; with `_PATIENT`, 1 s passes on average until the last one."""
UDP_IDLE = "60s"
"""A UDP session without datagrams for this long is forgotten; the client's next one may go to another backend."""
_BY_CLIENT: Message = {"hash_policy": [{"source_ip": {}}]}
_UDP_BY_CLIENT: Message = {"hash_policies": [{"source_ip": True}]}
# An ejection reaches the worker thread in well under a millisecond. A retry without delay would come before it and,
# with affinity, pick the same dead backend again.
_RETRY: Message = {"base_interval": "0.020s", "max_interval": "0.050s"}
_ATTEMPTS = re.compile(r'"max_connect_attempts":(\d+)')
_PATIENT: Message = {"max_interval": "0.250s"}
_BOUND: Message = {
    # The address may appear after the proxy; without this the order of the two would matter.
    "freebind": True,
    # On, a second Envoy would silently take a share of this address's clients instead of failing to bind.
    "enable_reuse_port": False,
}
_BOUNDED: Message = {"per_connection_buffer_limit_bytes": overload.BUFFER}
_LEAST_TTL = 30
"""Seconds: Envoy takes no listener at all of which an answer may be kept for less."""


def listener(spec: Listener) -> Message:
    """Make the Listener of one address, port and protocol."""
    return typed(
        "envoy.config.listener.v3.Listener",
        name=spec.name,
        **bound_at(spec, _counted_as(spec)),
        **(_udp(spec) if spec.protocol is Protocol.UDP else {**_tcp(spec), **(_BOUNDED if spec.bounded else {})}),
    )


def _counted_as(spec: Listener) -> str:
    """Return the name of a listener's statistics: by the port that clients use, which a reader knows."""
    if spec.protocol is Protocol.UDP:
        return spec.upstream
    return upstream_name(spec.protocol, spec.port, Family.of(spec.address))


def bound_at(spec: Listener | HttpListener, stat_prefix: str) -> Message:
    """Return where Envoy binds: at the clients' address, or on all of a container, with connections counted."""
    return {**_place(spec, stat_prefix), **_BOUND}


def holds_clients(listeners: str) -> bool | None:
    """Return whether listeners, as their texts are written, hold clients; None where none of them is for TCP."""
    attempts = set(_ATTEMPTS.findall(listeners))
    return str(PATIENT_ATTEMPTS) in attempts if attempts else None


def _place(spec: Listener | HttpListener, stat_prefix: str) -> Message:
    """Return the address; Docker may bring IPv6 clients over IPv4, where its network has no IPv6: so both are taken."""
    if not spec.container_port:
        return {"address": socket_address(str(spec.address), spec.port, spec.protocol)}
    any_address = socket_address("0.0.0.0", spec.container_port, spec.protocol)  # noqa: S104 - the container's own
    if Family.of(spec.address) is Family.IPV6:
        place: Message = {"address": "::", "port_value": spec.container_port, "protocol": spec.protocol}
        any_address = {"socket_address": {**place, "ipv4_compat": True}}
    return {"address": any_address, "stat_prefix": stat_prefix}


def _tcp(spec: Listener) -> Message:
    proxy = typed(
        "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        stat_prefix="tcp",
        cluster=spec.upstream,
        # A load balancer doesn't cut idle streams. Peers that vanished are found by keepalive probes, on both sides.
        idle_timeout="0s",
        max_connect_attempts=PATIENT_ATTEMPTS if spec.patient else CONNECT_ATTEMPTS,
        backoff_options={**_RETRY, **(_PATIENT if spec.patient else {})},
        **(_BY_CLIENT if spec.client_ip_affinity else {}),
    )
    chain: Message = {"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}]}
    sources = ranges(spec.source_ranges)
    match: Message = {"filter_chain_match": {"source_prefix_ranges": sources}} if sources else {}
    chains: list[Message] = [{**chain, **match}]
    if spec.fault or spec.detour:
        chains.append(faulty(chains[0], spec))
    chains += [logged(written, spec.name, spec.log) for written in chains if spec.log]
    return {"filter_chains": chains, "tcp_keepalive": KEEPALIVE}


def _udp(spec: Listener) -> Message:
    # Another size is another listener, which would end the sessions of the one that an earlier version made.
    size: Message = {"max_rx_datagram_size": _MAX_DATAGRAM if spec.bounded else _FORMER_MAX_DATAGRAM}
    proxy = typed(
        "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig",
        stat_prefix="udp",
        matcher=_matcher(spec),
        idle_timeout=UDP_IDLE,
        upstream_socket_config=size,
        **(_UDP_BY_CLIENT if spec.client_ip_affinity else {}),
    )
    return {
        "udp_listener_config": {"downstream_socket_config": size},
        "listener_filters": [{"name": "envoy.filters.udp_listener.udp_proxy", "typed_config": proxy}],
    }


def _matcher(spec: Listener) -> Message:
    """Return which datagrams go to the upstream: all of them, or those from the allowed sources. Others are dropped."""
    route = typed("envoy.extensions.filters.udp.udp_proxy.v3.Route", cluster=spec.upstream)
    forward: Message = {"action": {"name": "route", "typed_config": route}}
    allowed = ranges(spec.source_ranges)
    if not allowed:
        return {"on_no_match": forward}
    sources = typed("xds.type.matcher.v3.IPMatcher", range_matchers=[{"ranges": allowed, "on_match": forward}])
    source_ip = typed("envoy.extensions.matching.common_inputs.network.v3.SourceIPInput")
    return {
        "matcher_tree": {
            "input": {"name": "envoy.matching.inputs.source_ip", "typed_config": source_ip},
            "custom_match": {"name": "envoy.matching.custom_matchers.ip", "typed_config": sources},
        }
    }


def ranges(networks: Iterable[IPNetwork]) -> list[Message]:
    """Return the allowed sources, sorted and unique. Ranges of the other family match no client, as intended."""
    ordered = sorted(set(networks), key=get_mixed_type_key)
    return [{"address_prefix": str(n.network_address), "prefix_len": n.prefixlen} for n in ordered]


def name_listener(spec: NameListener) -> Message:
    """Make the listener that answers from a table of its own, by UDP, so that a change is an LDS push.

    What it doesn't answer: types but A and AAAA (NOTIMP), TCP, questions in capitals. A name without an address of the
    family that is asked for doesn't exist to it (NXDOMAIN). Wildcards are answered with Envoy's own TTL, 300 s.
    """
    table: Message = {"virtual_domains": [_domain(served) for served in spec.table]}
    filter_ = typed(
        "envoy.extensions.filters.udp.dns_filter.v3.DnsFilterConfig",
        stat_prefix="dns",
        server_config={"inline_dns_table": table},
    )
    return typed(
        "envoy.config.listener.v3.Listener",
        name=spec.name,
        address=socket_address(str(spec.address), spec.port, "UDP"),
        **_BOUND,
        listener_filters=[{"name": "envoy.filters.udp.dns_filter", "typed_config": filter_}],
    )


def _domain(served: ServedName) -> Message:
    addresses = [str(address) for address in served.addresses]
    return {
        "name": served.name,
        "endpoint": {"address_list": {"address": addresses}},
        "answer_ttl": f"{max(served.ttl, _LEAST_TTL)}s",
    }
