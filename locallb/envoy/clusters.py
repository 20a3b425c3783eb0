"""Clusters of Envoy: the backends of an upstream, with load balancing, health checks and outlier ejection.

Backends are in a file of their own (EDS) or inside the cluster (STATIC). Two mechanisms detect failed ones. Active
checks find a dead node within 0.75 s, also where nothing flows; for UDP they are the only mechanism. Passive ejection
(TCP) needs no check: the first connect that fails (refused, or unanswered for 250 ms) takes the backend out, and the
listener's retry goes to another one, so that a client waits and doesn't fail.

Not here: the listeners that use clusters (`listeners`), and the choice of backends (`planning.backends`).
"""

from __future__ import annotations

from collections.abc import Iterable

from locallb.envoy import http_chains, overload
from locallb.envoy.document import KEEPALIVE, Message, socket_address, subscription, typed
from locallb.envoy.http_policies import duration
from locallb.model.http_serving import HttpBackends, Speaks
from locallb.model.identities import Protocol
from locallb.model.objects import Discovery
from locallb.model.serving import CHECK_INTERVAL, Backend, ConnectCheck, HttpCheck, Upstream, distinct
from locallb.patterns import pattern

STANDBY = 1
"""The priority of standby backends where clients keep theirs: MAGLEV knows no degraded ones."""
_FIRST, _BEHIND = 100, 1
"""Weights of backends and of standby backends. They count if no check passes and Envoy tries all: most attempts then go
where the plan wants them, instead of anywhere with the chance of one Node among many.
"""
_WHOLE: Message = {"overprovisioning_factor": 1_000_000}
"""One healthy backend of thousands keeps all traffic: with Envoy's 140 %, 3 dead of 8 would send some to standbys."""
_NAME = pattern(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def file_name(upstream: Upstream) -> str:
    """Name the EDS file of an upstream.

    Raises ValueError for a name that isn't one of ours: it would become a path.
    """
    if not _NAME.fullmatch(upstream.name):
        raise ValueError(
            f"Upstream {upstream.name!r} can't name a file: use at most 63 lower-case letters, digits and hyphens."
        )
    return f"eds-{upstream.name}.json"


def assignment(upstream: Upstream) -> Message:
    """Make the ClusterLoadAssignment: each backend once, in the order of family, address and port; standby behind."""
    first, behind = _endpoints(upstream.backends, upstream), _endpoints(upstream.standby, upstream)
    localities: list[Message] = [{"lb_endpoints": first}]
    if not behind:
        return {"cluster_name": upstream.name, "endpoints": localities}
    if upstream.client_ip_affinity:
        localities.append({"lb_endpoints": behind, "priority": STANDBY})
    else:
        weighed = [{**endpoint, "load_balancing_weight": _FIRST} for endpoint in first]
        degraded: Message = {"health_status": "DEGRADED", "load_balancing_weight": _BEHIND}
        localities = [{"lb_endpoints": [*weighed, *({**endpoint, **degraded} for endpoint in behind)]}]
    return {"cluster_name": upstream.name, "endpoints": localities, "policy": _WHOLE}


def _endpoints(backends: Iterable[Backend], upstream: Upstream) -> list[Message]:
    weights = dict(zip(upstream.backends, upstream.weights, strict=True)) if upstream.weights else {}
    return [_weighed(_endpoint(backend, upstream), weights.get(backend, 0)) for backend in distinct(backends)]


def _weighed(endpoint: Message, weight: int) -> Message:
    return {**endpoint, "load_balancing_weight": weight} if weight else endpoint


def _endpoint(backend: Backend, upstream: Upstream) -> Message:
    if backend.relayed:
        return {"endpoint": {"address": {"pipe": {"path": backend.relayed.path}}, "hostname": str(backend)}}
    endpoint: Message = {"address": socket_address(str(backend.address), backend.port)}
    number = upstream.health.port if isinstance(upstream.health, HttpCheck) else 0
    if upstream.health is None or not (number or backend.checked_port):
        return {"endpoint": endpoint}
    return {"endpoint": {**endpoint, "health_check_config": _checked(backend, number)}}


def _checked(backend: Backend, number: int) -> Message:
    """Return where a backend is checked, if not at `number` of its own address."""
    if backend.checked_port is None:
        return {"disable_active_health_check": True}
    port = backend.checked_port or number
    if backend.checked_at is None:
        return {"port_value": port}
    return {"address": socket_address(str(backend.checked_at), port)}


_HTTP1_IDLE = "4s"
"""Seconds after which an idle connection to a backend is closed: before usual backends do (5 s and more), so that no
request meets a connection that is just being closed."""
_HEADERS: Message = {
    "max_headers_count": overload.MAX_HEADERS,
    "max_response_headers_kb": overload.MAX_HEADERS_KIB,
}
_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
CONNECT_TIMEOUT = "0.250s"
"""How long a dead node may keep one client waiting before another is tried."""
CHECK_TIMEOUT = "0.250s"
"""Also what a change of a STATIC upstream waits for when one of its nodes is dead."""
PANIC_PERCENT = 1
"""Below this share of healthy backends all of them are tried; with up to a hundred, that is when none is healthy.

New backends count as unhealthy until their first check ended, and a busy machine can make every check late. With 0 the
clients of that moment would be cut off (81 requests, when all backends were exchanged for ones with checks of 0.2 s).
Envoy rounds it to a whole number, so nothing smaller would do.
"""
MAX_CONNECTIONS = 1_000_000
"""Above the proxy's own limit: Envoy's default of 1024 is no limit that a load balancer should have."""
_LIMITS: Message = {
    "max_connections": MAX_CONNECTIONS,
    "max_pending_requests": MAX_CONNECTIONS,
    "max_requests": MAX_CONNECTIONS,
}
_REQUESTS: Message = {
    "circuit_breakers": {"thresholds": [{**_LIMITS, "max_retries": MAX_CONNECTIONS}]},
}
"""A request that isn't taken goes elsewhere: no backend is taken out for that."""
_CONNECTIONS: Message = {"circuit_breakers": {"thresholds": [_LIMITS]}}
_SESSIONS: Message = {"circuit_breakers": {"thresholds": [{**_LIMITS, "max_connections": overload.MAX_SESSIONS}]}}
_KEPT_ALIVE: Message = {"upstream_connection_options": {"tcp_keepalive": KEEPALIVE}}
_OUTLIERS: Message = {
    # Without effect on UDP: as many datagrams were lost with it as without, to a closed port and to a dead node.
    "outlier_detection": {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": 1,
        "enforcing_consecutive_local_origin_failure": 100,
        "enforcing_local_origin_success_rate": 0,
        "interval": "0.500s",
        "base_ejection_time": "1s",
        "max_ejection_time": "10s",
        # Below 100, so that the last backend is never ejected: it is the only one to try.
        "max_ejection_percent": 99,
    },
}
RECEIVED, SENT, LATENCY = "upstream_cx_rx_bytes_total", "upstream_cx_tx_bytes_total", "upstream_rq_time"
"""Statistics, seen from Envoy: what backends sent and got, and how many milliseconds they took to answer."""
_RETAINED = (".membership_healthy", ".membership_total", f".{RECEIVED}", f".{SENT}", f".{LATENCY}")
"""Suffixes of the statistics that are kept for a reported cluster: this replaces the bootstrap's own list."""
_MEASURED: Message = {
    "typed_filter_metadata": {
        "envoy.stats_matcher": typed(
            "envoy.config.metrics.v3.StatsMatcher",
            inclusion_list={"patterns": [{"suffix": name} for name in _RETAINED]},
        )
    }
}


def cluster(upstream: Upstream, discovery: Discovery) -> Message:
    return typed(
        "envoy.config.cluster.v3.Cluster",
        name=upstream.name,
        connect_timeout=CONNECT_TIMEOUT,
        # MAGLEV: a backend that comes or goes moves its own clients and 0.2 % of the others; RING_HASH moves 11 % of
        # them, as each backend's share of the ring is cut again. Otherwise turn by turn, so that a retry meets another.
        lb_policy="MAGLEV" if upstream.client_ip_affinity else "ROUND_ROBIN",
        common_lb_config={"healthy_panic_threshold": {"value": PANIC_PERCENT}, "update_merge_window": "0s"},
        # A backend that was taken out is out at once, however healthy it is.
        ignore_health_on_host_removal=True,
        **({"per_connection_buffer_limit_bytes": _buffer(upstream)} if upstream.bounded else {}),
        **({**_REQUESTS, **_http_options(upstream.http)} if upstream.http else _connections(upstream)),
        **(_OUTLIERS if upstream.protocol is Protocol.TCP and upstream.http is None else {}),
        **(_KEPT_ALIVE if upstream.protocol is Protocol.TCP and not is_relayed(upstream) else {}),
        **_backends(upstream, discovery),
        **_checks(upstream),
        **_transport(upstream, discovery),
        **({"metadata": _MEASURED} if upstream.measured else {}),
    )


def is_relayed(upstream: Upstream) -> bool:
    """Return whether connections go to sockets of a relay, which take no options of TCP."""
    return any(backend.relayed for backend in upstream.backends)


def _buffer(upstream: Upstream) -> int:
    return overload.HTTP_BUFFER if upstream.http else overload.BUFFER


def _connections(upstream: Upstream) -> Message:
    return _SESSIONS if upstream.bounded and upstream.protocol is Protocol.UDP else _CONNECTIONS


def _transport(upstream: Upstream, discovery: Discovery) -> Message:
    """Return how connections to backends are made where not in plain TCP; health checks use plain TCP."""
    if not _is_special(upstream):
        return {}
    checks: Message = {"name": "check", "match": _CHECKED, "transport_socket": _PLAIN}
    return {"transport_socket": _socket(upstream, discovery), "transport_socket_matches": [checks]}


def _is_special(upstream: Upstream) -> bool:
    return bool(upstream.proxy_protocol or upstream.tls)


def _socket(upstream: Upstream, discovery: Discovery) -> Message:
    """Make the transport socket: TLS if configured, below the PROXY protocol header with the client's address."""
    inner = http_chains.upstream(upstream, upstream.tls, discovery) if upstream.tls else _PLAIN
    if upstream.proxy_protocol is None:
        return inner
    transport = typed(
        f"{_SOCKETS}.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
        config={"version": upstream.proxy_protocol.upper()},
        transport_socket=inner,
    )
    return {"name": "envoy.transport_sockets.upstream_proxy_protocol", "typed_config": transport}


_SOCKETS = "envoy.extensions.transport_sockets"
_PLAIN: Message = {
    "name": "envoy.transport_sockets.raw_buffer",
    "typed_config": typed(f"{_SOCKETS}.raw_buffer.v3.RawBuffer"),
}
_CHECKED: Message = {"check": True}


def _backends(upstream: Upstream, discovery: Discovery) -> Message:
    if discovery is Discovery.STATIC:
        return {"type": "STATIC", "load_assignment": assignment(upstream)}
    return {"type": "EDS", "eds_cluster_config": {"eds_config": subscription(f"./{file_name(upstream)}")}}


def _checks(upstream: Upstream) -> Message:
    plain: Message = {"transport_socket_match_criteria": _CHECKED} if _is_special(upstream) else {}
    match upstream.health:
        # A TCP connect says nothing about a UDP port.
        case ConnectCheck() if upstream.protocol is Protocol.TCP:
            return {"health_checks": [{**_times(upstream), **plain, "tcp_health_check": {}}]}
        case HttpCheck(path=path):
            return {
                "health_checks": [
                    {**_times(upstream), **plain, "http_health_check": {"path": path, "host": "local-lb"}}
                ]
            }
        case _:
            return {}


def _times(upstream: Upstream) -> Message:
    """Return when backends are checked, and what counts; one that failed twice as often, unless there are too many."""
    interval = duration(upstream.check_every)
    retry = "0.250s" if upstream.check_every == CHECK_INTERVAL else interval
    return {
        "timeout": CHECK_TIMEOUT,
        "interval": interval,
        # Envoy checks a cluster that never had traffic once a minute unless told otherwise.
        "no_traffic_interval": interval,
        "unhealthy_interval": retry,
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
    }


def _http_options(http: HttpBackends) -> Message:
    """Make the field of a cluster that says which HTTP its backends understand."""
    if http.speaks is Speaks.HTTP2:
        windows = {"initial_stream_window_size": overload.STREAM_WINDOW}
        version = typed(
            _HTTP_OPTIONS,
            explicit_http_config={"http2_protocol_options": windows},
            common_http_protocol_options=_HEADERS,
        )
    else:
        version = typed(
            _HTTP_OPTIONS,
            explicit_http_config={"http_protocol_options": {}},
            common_http_protocol_options={"idle_timeout": _HTTP1_IDLE, **_HEADERS},
        )
    return {"typed_extension_protocol_options": {_HTTP_OPTIONS: version}}
