"""Listeners of Envoy: the sockets that clients reach, with filter chains for faults and logs, and DNS answers. Pure.

A listener's name is `model.serving.Listener.name`, which every message uses. Nothing here names a backend, so that
backends are added and removed without touching a listener. Logs and faults are additional filter chains that match
first: so open connections stay on their chain, which doesn't change.

Not here: chains of HTTP (`http_chains`), the reader of logs (`traffic.reading`), and the faults themselves
(`model.faults`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from locallb.envoy import overload
from locallb.envoy.document import KEEPALIVE, Message, socket_address, subscription, text, typed
from locallb.model.faults import WHOLE, Fault
from locallb.model.fields import JsonObject
from locallb.model.http_serving import HttpListener
from locallb.model.identities import Family, IPNetwork, Protocol
from locallb.model.ranges import sorted_networks
from locallb.model.serving import Listener, NameListener, ServedName
from locallb.model.texts import upstream_name
from locallb.patterns import pattern

SOCKET, GATE = "logs.sock", "logs-gate.json"
"""File names in the proxy's directory: where lines go, and how many may."""
FIELDS = {
    "time": "%START_TIME%",
    "listener": "%FILTER_CHAIN_NAME%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS%",
    "backend": "%UPSTREAM_HOST%",
    "in": "%BYTES_RECEIVED%",
    "out": "%BYTES_SENT%",
    "milliseconds": "%DURATION%",
    "flags": "%RESPONSE_FLAGS_LONG%",
    "protocol": "%PROTOCOL%",
    "method": "%REQ(:METHOD):20%",
    "host": "%REQ(:AUTHORITY):255%",
    "path": "%PATH(NQ:ORIG_OR_PATH):1000%",
    "status": "%RESPONSE_CODE%",
}
"""What a line has, in Envoy's terms. Queries aren't in it, nor headers: secrets stand there."""
NONE = "-"
"""What Envoy says where there is nothing."""
CLOSED = 1
"""Lines of a closed gate: Envoy knows no fewer."""
_HALVES = ("0.0.0.0", "128.0.0.0", "::", "8000::")  # noqa: S104 - matched, not bound
_ANYWHERE: list[Message] = [{"address_prefix": half, "prefix_len": 1} for half in _HALVES]
"""All addresses, in a way that is found before none: a prefix of no bits is the same as none to Envoy."""
_LOGGERS = "envoy.extensions.access_loggers"
_NEVER = "31536000s"
"""When a gate opens by itself."""
_AT_ONCE: Message = {"max_connections": 1, "max_pending_requests": 64, "max_requests": 64}
"""Bounds what waits for a reader that is slow."""


def logged(chain: JsonObject, listener: str, cluster: str) -> Message:
    """Make the chain that equals another one, and reports each connection or request to the reader behind `cluster`.

    The log is sent to a socket in the proxy's directory on request. The copy of the chain matches first, because it
    names all addresses: so connections that were open when the log was requested stay on an unchanged chain. A gate
    passes as many lines as its file allows, and then no more until that is written again: closed it costs nothing, and
    an active reader renews it.
    """
    *before, last = chain["filters"]
    config = {**last["typed_config"], "access_log": [_log(cluster)]}
    return {
        **chain,
        "name": listener,
        "filter_chain_match": {**chain.get("filter_chain_match", {}), "prefix_ranges": _ANYWHERE},
        "filters": [*before, {**last, "typed_config": config}],
    }


def reader(name: str) -> Message:
    """Make the cluster of the log's reader."""
    endpoint: Message = {"endpoint": {"address": {"pipe": {"path": f"./{SOCKET}"}}}}
    return typed(
        "envoy.config.cluster.v3.Cluster",
        name=name,
        connect_timeout="1s",
        type="STATIC",
        load_assignment={"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
        circuit_breakers={"thresholds": [_AT_ONCE]},
    )


def gate(lines: int) -> str:
    """Write the file that lets so many lines pass from now on, if it is another number than before."""
    bucket = typed("envoy.type.v3.TokenBucket", max_tokens=lines, tokens_per_fill=1, fill_interval=_NEVER)
    resource = typed("envoy.service.discovery.v3.Resource", name=GATE, version=str(lines), resource=bucket)
    return text({"version_info": str(lines), "resources": [resource]})


def _log(cluster: str) -> Message:
    values: list[Message] = [{"key": name, "value": {"string_value": word}} for name, word in FIELDS.items()]
    config = typed(
        f"{_LOGGERS}.open_telemetry.v3.OpenTelemetryAccessLogConfig",
        http_service={"http_uri": {"uri": "http://local-lb/logs", "cluster": cluster, "timeout": "10s"}},
        disable_builtin_labels=True,
        log_name="local-lb",
        body={"kvlist_value": {"values": values}},
    )
    bucket: Message = {"resource_name": GATE, "config_source": subscription(f"./{GATE}")}
    passes = typed(f"{_LOGGERS}.filters.process_ratelimit.v3.ProcessRateLimitFilter", dynamic_config=bucket)
    filter_: Message = {"name": "envoy.access_loggers.extension_filters.process_ratelimit", "typed_config": passes}
    return {
        "name": "envoy.access_loggers.open_telemetry",
        "filter": {"extension_filter": filter_},
        "typed_config": config,
    }


NO_CLUSTER = "local-lb-nobody"
"""A cluster that there isn't: a connection to it is reset at once."""
_CLUSTER, _FATE = "envoy.tcp_proxy.cluster", "local-lb.fault"
"""What is noted of a connection before its first byte: where it goes, and what becomes of it then."""
_HANG, _RESET = "hang", "reset"
_HANGS = "86400s"
"""How long at most a connection hangs; its client will have given up."""
_PRIME = 1_000_000_007
"""Cubes of the numbers below it are all different, and spread what arrives in a rhythm over all of them."""
_MIXED = f"(request.time.getMilliseconds() * 7919 + source.port * 104729 + int(connection.id) * 15485863) % {_PRIME}"
_DRAWN = f"((({_MIXED}) * ({_MIXED})) % {_PRIME} * ({_MIXED})) % {_PRIME} % {WHOLE}"
"""A number for each connection, below `WHOLE`: Envoy's expressions have no dice."""
_FILTERS = "envoy.extensions.filters.network"


def faulty(chain: Message, spec: Listener) -> Message:
    """Make the chain with the faults ordered for a listener, from the chain that leads to its upstream.

    It equals the serving chain except for filters that draw a number for each connection, and it matches first because
    it names the port: so open connections stay on their chain, which isn't touched by a fault that begins or ends. Each
    filter compares the time of the connection with the fault's end, so that the fault ends without an update; from then
    on the chain serves as the other does.
    """
    match, filters = chain.get("filter_chain_match"), chain["filters"]
    port = spec.container_port or spec.port
    return {
        "filter_chain_match": {**(match if isinstance(match, Mapping) else {}), "destination_port": port},
        "filters": [
            _noted(spec.fault, _leading(spec)),
            *([_denied(_HANG, delay_deny=_HANGS), _denied(_RESET)] if spec.fault else []),
            *(filters if isinstance(filters, list) else []),
        ],
    }


def _leading(spec: Listener) -> str:
    """Return the expression of where connections go that nothing befalls."""
    upstream, detour = f'"{spec.upstream}"', spec.detour
    return _before(detour.until, f'"{detour.upstream or NO_CLUSTER}"', upstream) if detour else upstream


def _noted(fault: Fault | None, leading: str) -> Message:
    """Draw and note what becomes of each connection that is made before the end."""
    notes = {_CLUSTER: leading}
    if fault:
        refused, hanging = fault.refuse, fault.refuse + fault.hang
        fate = f'{_DRAWN} < {refused} ? "" : {_DRAWN} < {hanging} ? "{_HANG}" : {_DRAWN} < {hanging + fault.reset}'
        notes = {
            _CLUSTER: _before(fault.until, f'{_DRAWN} < {refused} ? "{NO_CLUSTER}" : {leading}', leading),
            _FATE: _before(fault.until, f'{fate} ? "{_RESET}" : ""', '""'),
        }
    values: list[Message] = [
        {"object_key": key, "factory_key": _FACTORIES[key], "format_string": _format(expression)}
        for key, expression in notes.items()
    ]
    config = typed(f"{_FILTERS}.set_filter_state.v3.Config", on_new_connection=values)
    return {"name": "envoy.filters.network.set_filter_state", "typed_config": config}


_FACTORIES = {_CLUSTER: _CLUSTER, _FATE: "envoy.string"}


def _before(until: str, meanwhile: str, otherwise: str) -> str:
    return f'request.time < timestamp("{until}") ? ({meanwhile}) : {otherwise}'


def _format(expression: str) -> Message:
    return {"text_format_source": {"inline_string": f"%CEL({expression})%"}}


def _denied(fate: str, **more: str) -> Message:
    """Deny connections of a fate when their client has sent something: at once, or after a long delay."""
    noted: Message = {"filter_state": {"key": _FATE, "string_match": {"exact": fate}}}
    policy: Message = {"permissions": [{"any": True}], "principals": [noted]}
    config = typed(
        f"{_FILTERS}.rbac.v3.RBAC", stat_prefix="fault", rules={"action": "DENY", "policies": {fate: policy}}, **more
    )
    return {"name": "envoy.filters.network.rbac", "typed_config": config}


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
_ATTEMPTS = pattern(r'"max_connect_attempts":(\d+)')
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
    return [{"address_prefix": str(n.network_address), "prefix_len": n.prefixlen} for n in sorted_networks(networks)]


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
