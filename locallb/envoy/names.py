"""DNS in Envoy's words: a UDP listener that answers from a table of its own, so that a change is an LDS push.

What it doesn't answer: types but A and AAAA (NOTIMP), TCP, questions in capitals. A name without an address of the
family that is asked for doesn't exist to it (NXDOMAIN). Wildcards are answered with Envoy's own TTL, 300 s.
"""

from __future__ import annotations

from locallb.envoy.document import Message, socket_address, typed
from locallb.model.serving import NameListener, ServedName

_FILTER = "envoy.filters.udp.dns_filter"
_LEAST_TTL = 30
"""Seconds: Envoy takes no listener at all of which an answer may be kept for less."""


def name_listener(spec: NameListener) -> Message:
    """Make the listener."""
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
        # As of every listener: the address may come later, and nobody else may have a share of it.
        freebind=True,
        enable_reuse_port=False,
        listener_filters=[{"name": _FILTER, "typed_config": filter_}],
    )


def _domain(served: ServedName) -> Message:
    addresses = [str(address) for address in served.addresses]
    return {
        "name": served.name,
        "endpoint": {"address_list": {"address": addresses}},
        "answer_ttl": f"{max(served.ttl, _LEAST_TTL)}s",
    }
