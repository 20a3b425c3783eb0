"""Envoy configuration of TLS, downstream and upstream, and its secrets, in files of their own (SDS) or inline.

Keys are named and never here: `tls-*.key` and `tls-*.crt` are in the same directory, written by the process that may
read the Secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from locallb.envoy.document import Json, Message, subscription, typed
from locallb.envoy.http import names
from locallb.model.http.backends import BackendTls
from locallb.model.http.serving import AnyCertificate, Chain, ClientValidation, HttpListener, HttpRoutes
from locallb.model.objects import Discovery
from locallb.model.serving import Upstream

SYSTEM_AUTHORITIES = "authorities.pem"
"""The file with what the system trusts, a copy, as a container has none."""
_SOCKETS = "envoy.extensions.transport_sockets.tls.v3"
_SECRET = f"{_SOCKETS}.Secret"
_UPSTREAM = f"{_SOCKETS}.UpstreamTlsContext"
_QUIC = "envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport"
_NAME = "envoy.transport_sockets.tls"


def downstream(listener: HttpListener, chain: Chain, discovery: Discovery, *, quic: bool = False) -> Message:
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
        common["validation_context_sds_secret_config"] = _reference(names.clients(listener, chain))
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
            "validation_context_sds_secret_config": _reference(names.authorities(spec)),
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
                name = names.clients(listener, chain)
                yield name, typed(_SECRET, name=name, validation_context=_client_context(clients))
    for spec in upstreams:
        if spec.tls and spec.tls.authorities:
            name = names.authorities(spec)
            yield name, typed(_SECRET, name=name, validation_context=_trusted(spec.tls.authorities))
    for certificate in certificates(listeners, upstreams):
        name = names.pair(certificate)
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
        return {"tls_certificate_sds_secret_configs": [_reference(names.pair(pair)) for pair in pairs]}
    return {"tls_certificates": [_files(pair) for pair in pairs]}


def _files(certificate: AnyCertificate) -> Message:
    chain, key = names.chain_file(certificate), names.key_file(certificate)
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
