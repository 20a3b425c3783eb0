"""Envoy configuration of HTTP and TLS listeners: a filter chain for each chain, found by SNI.

Routes, certificates and authorities are referred to (`Discovery.EDS`) or inline: referred to, none of their changes is
a change of the listener. Requests and answers pass as they are: no header of Envoy's is added but those by which a
backend hears of the client (x-forwarded-for, x-forwarded-proto), none of its commands is taken from a client.
"""

from __future__ import annotations

from collections.abc import Iterator

from locallb.envoy import overload
from locallb.envoy.access_logs import logged
from locallb.envoy.document import KEEPALIVE, Json, Message, socket_address, subscription, typed
from locallb.envoy.http import names, tls
from locallb.envoy.http.actions import NO_OWNER, Entrance, targets
from locallb.envoy.http.clients_headers import clients_headers
from locallb.envoy.http.faults import dormant
from locallb.envoy.http.policies import CORS, SESSION, SOURCES
from locallb.envoy.http.routes import table
from locallb.envoy.listeners import bound_at, ranges
from locallb.model.http.serving import Chain, HttpListener, HttpRoutes, TcpForward
from locallb.model.identities import Family, Protocol
from locallb.model.naming import upstream_name
from locallb.model.objects import Discovery

QUIC = "QUIC"
"""The protocol in the names of listeners of HTTP/3: nothing that a Service has, so that they are no ports of theirs."""
_FILTERS = "envoy.extensions.filters"


def listener(spec: HttpListener, discovery: Discovery) -> Message:
    """Make the Listener of one address and port."""
    by_name = any(chain.names for chain in spec.chains)
    chains = [_chain(spec, chain, discovery) for chain in spec.chains]
    chains += [logged(chain, spec.name, spec.log) for chain in chains if spec.log]
    return typed(
        "envoy.config.listener.v3.Listener",
        name=spec.name,
        **bound_at(spec, upstream_name(spec.protocol, spec.port, Family.of(spec.address))),
        **({"listener_filters": [_INSPECTOR]} if by_name else {}),
        filter_chains=chains,
        tcp_keepalive=KEEPALIVE,
        per_connection_buffer_limit_bytes=overload.HTTP_BUFFER,
    )


def listeners(spec: HttpListener, discovery: Discovery) -> Iterator[Message]:
    """Make the listener of one address and port, and the one of HTTP/3 in addition."""
    yield listener(spec, discovery)
    if spec.quic:
        yield typed(
            "envoy.config.listener.v3.Listener",
            name=f"{spec.place}/{QUIC}",
            **{**bound_at(spec, ""), **_datagrams(spec)},
            udp_listener_config={"quic_options": {"quic_protocol_options": _STREAMS}},
            per_connection_buffer_limit_bytes=overload.HTTP_BUFFER,
            filter_chains=[_chain(spec, chain, discovery, quic=True) for chain in spec.secure],
        )


def _datagrams(spec: HttpListener) -> Message:
    return {"address": socket_address(str(spec.address), spec.port, Protocol.UDP)}


_INSPECTOR: Message = {
    "name": "envoy.filters.listener.tls_inspector",
    "typed_config": typed(f"{_FILTERS}.listener.tls_inspector.v3.TlsInspector"),
}


def _chain(spec: HttpListener, chain: Chain, discovery: Discovery, *, quic: bool = False) -> Message:
    match: dict[str, Json] = {"server_names": sorted(chain.names)} if chain.names else {}
    if sources := ranges(spec.source_ranges):
        match["source_prefix_ranges"] = sources
    return {
        **({"filter_chain_match": match} if match else {}),
        **tls.downstream(spec, chain, discovery, quic=quic),
        "filters": [_filter(spec, chain, discovery, quic=quic)],
    }


def _filter(spec: HttpListener, chain: Chain, discovery: Discovery, *, quic: bool) -> Message:
    if isinstance(chain.serves, TcpForward):
        return {"name": "envoy.filters.network.tcp_proxy", "typed_config": _forwarded(chain.serves)}
    source = _source(spec, chain, chain.serves, discovery)
    manager = _manager(spec, source, by_source=chain.serves.by_source)
    codec: Message = {"codec_type": "HTTP3", "http3_protocol_options": {}} if quic else {}
    return {"name": "envoy.filters.network.http_connection_manager", "typed_config": {**manager, **codec}}


def _forwarded(forward: TcpForward) -> Message:
    live = any(target.weight for target in forward.targets)
    return typed(
        f"{_FILTERS}.network.tcp_proxy.v3.TcpProxy",
        stat_prefix="tcp",
        idle_timeout="0s",
        max_connect_attempts=4,
        **(targets(forward.targets) if live else {"cluster": NO_OWNER}),
    )


def _source(spec: HttpListener, chain: Chain, routes: HttpRoutes, discovery: Discovery) -> Message:
    name = names.table(spec, chain)
    if discovery is Discovery.EDS:
        return {"rds": {"route_config_name": name, "config_source": subscription(f"./{name}.json")}}
    return {"route_config": table(name, routes, Entrance.of(spec, chain), spec.fault)}


def _manager(spec: HttpListener, source: Message, *, by_source: bool) -> Message:
    sources, faults = [_sources()] if by_source else [], [dormant()] if spec.may_fail else []
    return typed(
        f"{_FILTERS}.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="http",
        **source,
        **{**_TRANSPARENT, **(_MERGING if by_source else {})},
        # Clients of HTTP/1.0 may name no host: then it is the address that they use, as with those that know no name.
        http_protocol_options={"accept_http_10": True, "default_host_for_http_10": spec.place},
        http_filters=[clients_headers(), *sources, _cors(), *faults, _session(), _router()],
    )


_NO_CLIENT: Message = {"address_prefix": "255.255.255.255", "prefix_len": 32}
"""A range from which no connection comes."""
_STREAMS: Message = {
    "max_concurrent_streams": overload.MAX_STREAMS,
    "initial_stream_window_size": overload.STREAM_WINDOW,
    "initial_connection_window_size": overload.CONNECTION_WINDOW,
}
_TRANSPARENT: Message = {
    "use_remote_address": True,
    # No client may command Envoy by its `x-envoy-` headers. Without a range, loopback and private addresses might.
    "internal_address_config": {"unix_sockets": False, "cidr_ranges": [_NO_CLIENT]},
    # Of a loopback client Envoy would name an address of this host instead: the routes name it (`http.routes`).
    "skip_xff_append": True,
    "generate_request_id": False,
    "server_header_transformation": "PASS_THROUGH",
    # Dot segments are resolved, so that no prefix is left by them; everything else of a path is the backends' matter.
    "normalize_path": True,
    "merge_slashes": False,
    "path_with_escaped_slashes_action": "KEEP_UNCHANGED",
    "strip_trailing_host_dot": True,
    "upgrade_configs": [{"upgrade_type": "websocket"}],
    "http2_protocol_options": {"allow_connect": True, **_STREAMS},
    "max_request_headers_kb": overload.MAX_HEADERS_KIB,
    "common_http_protocol_options": {"max_headers_count": overload.MAX_HEADERS},
    # From the first byte to the last of the headers: half a request ends.
    "request_headers_timeout": "30s",
    # A load balancer doesn't cut idle streams; peers that vanished are found by keepalive probes.
    "stream_idle_timeout": "0s",
}

_MERGING: Message = {"merge_slashes": True, "path_with_escaped_slashes_action": "UNESCAPE_AND_FORWARD"}
"""Where a path may be for some sources alone: no other way of writing it leads past that."""


def _sources() -> Message:
    return {"name": SOURCES, "typed_config": typed(f"{_FILTERS}.http.rbac.v3.RBAC")}


def _cors() -> Message:
    return {"name": CORS, "typed_config": typed(f"{_FILTERS}.http.cors.v3.Cors")}


def _session() -> Message:
    return {"name": SESSION, "typed_config": typed(f"{_FILTERS}.http.stateful_session.v3.StatefulSession")}


def _router() -> Message:
    router = typed(f"{_FILTERS}.http.router.v3.Router", suppress_envoy_headers=True)
    return {"name": "envoy.filters.http.router", "typed_config": router}
