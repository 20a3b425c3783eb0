"""The bootstrap and the arguments of an Envoy: its configuration that never changes while it runs.

Everything that changes while it runs is in the files that it watches. All paths are relative to its working directory,
the proxy's own, so that the bootstrap is the same bytes on every machine.
"""

from __future__ import annotations

from locallb.envoy import overload
from locallb.envoy.document import Message, subscription
from locallb.model.serving import HeapBounds, Proxy
from locallb.patterns import pattern

ADMIN_SOCKET = "admin.sock"
"""File name of the admin interface in the proxy's directory."""
ADMIN_MODE = 0o660
"""Mode of the admin socket: only a container's owner and group may connect."""
ALONE = "--disable-hot-restart"
"""What keeps an Envoy from handing over to another one. Without it, and without a number of its own, two in one network
namespace fight over one shared memory."""
_DRAIN, _NO_DRAIN = "600", "0"
ARGUMENTS = (
    "--config-path",
    "./bootstrap.json",
    ALONE,
    "--concurrency",
    "1",
    "--drain-time-s",
    _DRAIN,
    "--log-level",
    "warn",
)
"""Envoy's arguments, the same for every runtime; the working directory is the proxy's.

The drain time is how long a stream lives on after its listener was removed or its `sourceRanges` changed."""
_UDP_ARGUMENTS = tuple(_NO_DRAIN if word == _DRAIN else word for word in ARGUMENTS)


def arguments(*, udp_only: bool) -> tuple[str, ...]:
    """Return the arguments of a proxy; one without streams has none to wait for, and frees ports that it gives up."""
    return _UDP_ARGUMENTS if udp_only else ARGUMENTS


def bootstrap(proxy: Proxy) -> Message:
    """Make the Bootstrap of a proxy: identity, admin socket, where the rest is read from, limits."""
    bounds = overload.manager(proxy.heap) if proxy.bounded else {"resource_monitors": [overload.CONNECTIONS]}
    return {
        "node": {"id": proxy.id, "cluster": proxy.name, **({"metadata": {_UDP_ONLY: True}} if proxy.udp_only else {})},
        "admin": {"address": {"pipe": {"path": f"./{ADMIN_SOCKET}", "mode": ADMIN_MODE}}},
        "dynamic_resources": {"lds_config": subscription("./lds.json"), "cds_config": subscription("./cds.json")},
        "overload_manager": bounds,
        "stats_config": {"stats_matcher": {"inclusion_list": {"patterns": list(_stats(proxy))}}},
        "stats_flush_on_admin": True,
        **({"layered_runtime": _EXPRESSIONS} if proxy.may_serve_http else {}),
    }


def takes_http(text: str) -> bool:
    """Return whether a bootstrap of any version of ours has what HTTP listeners need."""
    return _LIMIT in text


def heap_bounds(text: str) -> HeapBounds:
    """Return how a bootstrap of any version of ours bounds the heap."""
    found = _HEAP.search(text)
    return HeapBounds(
        int(found[1]) if found else 0,
        ends_stalled=overload.ENDS_STALLED in text,
        counts_rejected=not takes_http(text) or all(name in text for name in REJECTIONS),
    )


def is_udp_only(text: str) -> bool:
    """Return whether a bootstrap of any version of ours is that of a proxy which serves UDP alone."""
    return bool(_ONLY.search(text))


_UDP_ONLY = "local-lb-udp-only"
_ONLY = pattern(rf'"{_UDP_ONLY}": ?true\b')
_HEAP = pattern(r'"max_heap_size_bytes": ?(\d{1,15})\b')


_LIMIT = "re2.max_program_size.error_level"
_EXPRESSIONS: Message = {"layers": [{"name": "local-lb", "static_layer": {_LIMIT: 10_000}}]}
"""Envoy refuses expressions of a hundred instructions, and with one the whole file; `regexes` bounds them by itself."""


def _stats(proxy: Proxy) -> tuple[Message, ...]:
    """Keep as well what tells whether connections to a published port arrive, and which requests are rejected."""
    counts = proxy.may_serve_http and (proxy.heap is None or proxy.heap.counts_rejected)
    rejections: tuple[Message, ...] = tuple({"exact": name} for name in REJECTIONS) if counts else ()
    return (*_STATS, *(_ARRIVALS if proxy.published else ()), *rejections)


REJECTIONS = ("http.http.downstream_cx_protocol_error", "http2.header_overflow")
"""Statistics that count requests with too many or too large headers, or not in HTTP; the second one with HTTP/2."""
_ARRIVALS: tuple[Message, ...] = ({"suffix": ".downstream_cx_total"}, {"suffix": ".no_filter_chain_match"})
_STATS: tuple[Message, ...] = (
    {"prefix": "listener_manager."},
    {"prefix": "cluster_manager."},
    {"suffix": ".membership_healthy"},
    {"suffix": ".membership_total"},
    {"exact": "server.live"},
)
"""The statistics that are kept: what `Reachable` and the status ask for."""
