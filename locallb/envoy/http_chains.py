"""Envoy configuration of HTTP and TLS listeners: a filter chain for each chain, found by SNI, with its TLS and secrets.

Routes (`rds-*.json`, one a chain), certificates and authorities (`sds-*.json`) are in files of their own that the
listener refers to and Envoy watches, by an inotify instance each (`Discovery.EDS`), or inline. A change of a file is no
change of the listener. File names are hashes, so that no name from a cluster becomes a path; without its ending, a
file's name is also Envoy's name for the resource in it. Keys are only named here: `tls-*.key` and `tls-*.crt` are in
the same directory, written by the process that may read the Secret.

Requests and answers pass as they are. Envoy adds no headers except those that describe the client to a backend
(x-forwarded-for, x-forwarded-proto), and obeys no command in a client's headers.

Not here: routes (`http_routes`), and other listeners (`listeners`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from locallb.envoy import overload
from locallb.envoy.document import KEEPALIVE, Discovered, Json, Message, socket_address, subscription, typed
from locallb.envoy.http_policies import CORS, SESSION, SOURCES, dormant
from locallb.envoy.http_routes import NO_CLUSTER, TABLE, Entrance, clients_headers, table, targets
from locallb.envoy.listeners import bound_at, logged, ranges
from locallb.model.http_serving import (
    AnyCertificate,
    BackendTls,
    Chain,
    ClientValidation,
    HttpListener,
    HttpRoutes,
    TcpForward,
)
from locallb.model.identities import Family, Protocol
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import Discovery
from locallb.model.serving import Upstream
from locallb.model.texts import upstream_name


def table_name(listener: HttpListener, chain: Chain) -> str:
    """Name the routes of a chain."""
    return f"rds-{_short(listener.name, *sorted(chain.names))}"


def clients_name(listener: HttpListener, chain: Chain) -> str:
    """Name the authorities that clients of a chain are checked by."""
    return f"sds-{_short('clients', listener.name, *sorted(chain.names))}"


def authorities_name(upstream: Upstream) -> str:
    """Name the authorities that an upstream's backends are checked by."""
    return f"sds-{_short('authorities', upstream.name)}"


def pair_name(certificate: AnyCertificate) -> str:
    """Name what says which files have a certificate and its key: the same for its successor."""
    return f"sds-{_secret(certificate)}"


def chain_file(certificate: AnyCertificate) -> str:
    """Name the file of a certificate; its successor's is another."""
    return f"tls-{_secret(certificate)}-{certificate.digest[:16]}.crt"


def key_file(certificate: AnyCertificate) -> str:
    """Name the file of a certificate's key."""
    return f"tls-{_secret(certificate)}-{certificate.digest[:16]}.key"


def _secret(certificate: AnyCertificate) -> str:
    return _short(*certificate.terms)


def _short(*terms: str) -> str:
    return hashlib.sha256("\n".join(terms).encode()).hexdigest()[:12]


SYSTEM_AUTHORITIES = "authorities.pem"
"""The file with what the system trusts, a copy, as a container has none."""
_SOCKETS = "envoy.extensions.transport_sockets.tls.v3"
_SECRET = f"{_SOCKETS}.Secret"
_UPSTREAM = f"{_SOCKETS}.UpstreamTlsContext"
_QUIC = "envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport"
_NAME = "envoy.transport_sockets.tls"


def downstream(listener: HttpListener, chain: Chain, discovery: Discovery, *, quic: bool) -> Message:
    """Make the transport socket of a chain that terminates TLS; nothing for one that doesn't.

    By QUIC certificates aren't referred to: one that it doesn't take is refused to all who refer to it.
    """
    if chain.termination is None:
        return {}
    common: dict[str, Json] = _pairs(chain.termination.certificates, Discovery.STATIC if quic else discovery)
    if isinstance(chain.serves, HttpRoutes):
        common["alpn_protocols"] = ["h3"] if quic else ["h2", "http/1.1"]
    clients = chain.termination.clients
    if clients and discovery is Discovery.EDS:
        common["validation_context_sds_secret_config"] = _reference(clients_name(listener, chain))
    elif clients:
        common["validation_context"] = _client_context(clients)
    required: Message = {"require_client_certificate": not clients.optional} if clients else {}
    context = typed(f"{_SOCKETS}.DownstreamTlsContext", common_tls_context=common, **required)
    if quic:
        socket = typed(_QUIC, downstream_tls_context={"common_tls_context": common})
        return {"transport_socket": {"name": "envoy.transport_sockets.quic", "typed_config": socket}}
    return {"transport_socket": {"name": _NAME, "typed_config": context}}


def upstream(spec: Upstream, tls: BackendTls, discovery: Discovery) -> Message:
    """Make the transport socket to an upstream's backends; without ALPN unless the upstream speaks HTTP."""
    common: dict[str, Json] = _pairs((tls.client,) if tls.client else (), discovery)
    if spec.http:
        common["alpn_protocols"] = [spec.http.speaks]
    if tls.believes_all:
        return {"name": _NAME, "typed_config": typed(_UPSTREAM, common_tls_context=common)}
    subjects: Message = {"match_typed_subject_alt_names": _subjects(tls)}
    if tls.authorities and discovery is Discovery.EDS:
        common["combined_validation_context"] = {
            "default_validation_context": subjects,
            "validation_context_sds_secret_config": _reference(authorities_name(spec)),
        }
    else:
        common["validation_context"] = {**subjects, **_trusted(tls.authorities)}
    context = typed(_UPSTREAM, sni=tls.server_name, common_tls_context=common)
    return {"name": _NAME, "typed_config": context}


def secrets(listeners: Sequence[HttpListener], upstreams: Sequence[Upstream]) -> Iterator[tuple[str, Message]]:
    """Yield the secrets that listeners and upstreams refer to, by name; a certificate as often as it is used."""
    for listener in listeners:
        for chain in listener.chains:
            if chain.termination and (clients := chain.termination.clients):
                name = clients_name(listener, chain)
                yield name, typed(_SECRET, name=name, validation_context=_client_context(clients))
    for spec in upstreams:
        if spec.tls and spec.tls.authorities:
            name = authorities_name(spec)
            yield name, typed(_SECRET, name=name, validation_context=_trusted(spec.tls.authorities))
    for certificate in certificates(listeners, upstreams):
        name = pair_name(certificate)
        yield name, typed(_SECRET, name=name, tls_certificate=_files(certificate))


def certificates(listeners: Sequence[HttpListener], upstreams: Sequence[Upstream]) -> frozenset[AnyCertificate]:
    """Return the certificates in use, with files in the proxy's directory."""
    terminations = (chain.termination for listener in listeners for chain in listener.chains)
    served = {pair for termination in terminations if termination for pair in termination.certificates}
    shown = (spec.tls.client for spec in upstreams if spec.tls)
    return frozenset(served | {pair for pair in shown if pair})


def _pairs(pairs: Sequence[AnyCertificate], discovery: Discovery) -> dict[str, Json]:
    if not pairs:
        return {}
    if discovery is Discovery.EDS:
        return {"tls_certificate_sds_secret_configs": [_reference(pair_name(pair)) for pair in pairs]}
    return {"tls_certificates": [_files(pair) for pair in pairs]}


def _files(certificate: AnyCertificate) -> Message:
    chain, key = chain_file(certificate), key_file(certificate)
    return {"certificate_chain": {"filename": f"./{chain}"}, "private_key": {"filename": f"./{key}"}}


def _reference(name: str) -> Message:
    return {"name": name, "sds_config": subscription(f"./{name}.json")}


def _client_context(clients: ClientValidation) -> Message:
    unverified: Message = {"trust_chain_verification": "ACCEPT_UNTRUSTED"} if clients.optional else {}
    return {**_trusted(clients.authorities), **unverified}


def _trusted(authorities: str) -> Message:
    source: Message = {"inline_string": authorities} if authorities else {"filename": f"./{SYSTEM_AUTHORITIES}"}
    return {"trusted_ca": source}


def _subjects(tls: BackendTls) -> Sequence[Message]:
    by_name = tls.dns_names or (() if tls.uris else (tls.server_name,))
    wanted = [*(("DNS", name) for name in by_name), *(("URI", uri) for uri in tls.uris)]
    return [{"san_type": kind, "matcher": {"exact": name}} for kind, name in wanted]


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
            **{**bound_at(spec, ""), "address": socket_address(str(spec.address), spec.port, Protocol.UDP)},
            udp_listener_config={"quic_options": {"quic_protocol_options": _STREAMS}},
            per_connection_buffer_limit_bytes=overload.HTTP_BUFFER,
            filter_chains=[_chain(spec, chain, discovery, quic=True) for chain in spec.secure],
        )


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
        **downstream(spec, chain, discovery, quic=quic),
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
        **(targets(forward.targets) if live else {"cluster": NO_CLUSTER}),
    )


def _source(spec: HttpListener, chain: Chain, routes: HttpRoutes, discovery: Discovery) -> Message:
    name = table_name(spec, chain)
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


NO_CLIENT: Message = {"address_prefix": "255.255.255.255", "prefix_len": 32}
"""A range from which no connection comes."""
_STREAMS: Message = {
    "max_concurrent_streams": overload.MAX_STREAMS,
    "initial_stream_window_size": overload.STREAM_WINDOW,
    "initial_connection_window_size": overload.CONNECTION_WINDOW,
}
_TRANSPARENT: Message = {
    "use_remote_address": True,
    # No client may command Envoy by its `x-envoy-` headers. Without a range, loopback and private addresses might.
    "internal_address_config": {"unix_sockets": False, "cidr_ranges": [NO_CLIENT]},
    # Of a loopback client Envoy would name an address of this host instead: the routes name it (`http_routes`).
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


def http_files(
    listeners: Sequence[HttpListener], upstreams: Sequence[Upstream], memory: AnyMemo
) -> Mapping[str, Discovered]:
    """Make the files besides listeners, clusters and endpoints, by name; `memory` caches the hosts of tables."""
    tables = {
        name: typed(
            TABLE, **table(name, chain.serves, Entrance.of(listener, chain), listener.fault, memory.of(name, Memo))
        )
        for listener in listeners
        for chain in listener.chains
        if isinstance(chain.serves, HttpRoutes) and (name := table_name(listener, chain))
    }
    return {
        f"{name}.json": Discovered.of([resource])
        for name, resource in {**tables, **dict(secrets(listeners, upstreams))}.items()
    }


def watched_by_chains(chains: Sequence[Chain], addresses: int) -> int:
    """Count at most what a proxy watches for chains, served at so many addresses: routes, authorities, certificates.

    Envoy watches a certificate's own files as well as the one that names them.
    """
    terminations = [chain.termination for chain in chains if chain.termination]
    pairs = {certificate for termination in terminations for certificate in termination.certificates}
    tables = sum(isinstance(chain.serves, HttpRoutes) for chain in chains)
    return addresses * (tables + sum(termination.clients is not None for termination in terminations)) + 2 * len(pairs)
