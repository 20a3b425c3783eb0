"""Bounds of one proxy: what a connection may keep in memory, and what Envoy refuses before its own memory ends.

A peer that doesn't read costs at most `BUFFER` on each side of a connection, since Envoy then stops reading from the
other one. What many of them take together is bounded by the heap: with more of it in use, Envoy first gives free memory
back, then closes idle connections and ends the requests that hold most of it, refuses new requests and ends those that
don't move, and refuses new connections last. Not here: time limits of requests (`http_routes`).
"""

from __future__ import annotations

from locallb.envoy.document import Message, typed
from locallb.model.serving import HeapBounds

BUFFER = 256 << 10
"""Bytes that a connection keeps at most for each peer; then the other one is read no further. Envoy's default is 1 MiB.

With half of it, a large transfer costs an eighth more of processor time; with more of it, nothing less."""
HTTP_BUFFER = 128 << 10
"""The same of a request or a response, which other buffers keep as well."""
REPEATED, MIRRORED = 256 << 10, 1 << 20
"""Bytes of a request that are kept to be sent to another backend, or to a mirror as well; others go once."""
STREAM_WINDOW, CONNECTION_WINDOW = 256 << 10, 4 << 20
"""Bytes that a client of HTTP/2 or HTTP/3 may send before a backend has taken them: of a request, and of all of a
connection (Envoy's defaults: 16 and 24 MiB)."""
MAX_HEADERS, MAX_HEADERS_KIB = 1000, 256
"""Headers of a request or a response, and their size. Envoy's defaults: 100, and 60 KiB."""
MAX_STREAMS = 250
"""Requests of one connection at a time, as Go's servers have it; a client sends others when one has ended."""
MAX_SESSIONS = 10_000
"""UDP sessions of one port. Each is a socket, and Envoy ends if it can't open one."""
MAX_HEAP = 1 << 30
"""Bytes of the heap: some sixty times of what an idle proxy has. A container with less memory has a smaller one."""
MAX_CONNECTIONS = 100_000
"""Client connections of one proxy: far above what a local cluster sees. Set because Envoy warns about an unlimited
proxy; the limits that bite first are the process's open files and its heap."""
STALLED, NEVER_STALLED = "30s", "31536000s"
"""How long a request may not move, in either direction, when requests are refused, and before: a year, as the longer
one must exist for Envoy to shorten it."""
ENDS_STALLED = "reduce_timeouts"
"""The action by which a bootstrap of ours shows that it ends what doesn't move."""
HEAP = "envoy.resource_monitors.fixed_heap"
_MONITORS = "envoy.extensions.resource_monitors"
_LEAST_TRACKED = 15
"""A request is accounted for once it holds 2 to the power of this, in bytes."""

CONNECTIONS: Message = {
    "name": "envoy.resource_monitors.global_downstream_max_connections",
    "typed_config": typed(
        f"{_MONITORS}.downstream_connections.v3.DownstreamConnectionsConfig",
        max_active_downstream_connections=MAX_CONNECTIONS,
    ),
}


def _above(share: float) -> Message:
    return {"name": HEAP, "threshold": {"value": share}}


def _between(share: float, all_of_it: float) -> Message:
    return {"name": HEAP, "scaled": {"scaling_threshold": share, "saturation_threshold": all_of_it}}


def _action(name: str, trigger: Message) -> Message:
    return {"name": f"envoy.overload_actions.{name}", "triggers": [trigger]}


_STALLED_ENDED: Message = {
    **_action(ENDS_STALLED, _above(0.9)),
    "typed_config": typed(
        "envoy.config.overload.v3.ScaleTimersOverloadActionConfig",
        timer_scale_factors=[{"timer": "HTTP_DOWNSTREAM_STREAM_IDLE", "min_timeout": STALLED}],
    ),
}
"""A client that is gone can't be noticed while its request isn't read any further, and nothing else would end it."""


def manager(heap: HeapBounds | None) -> Message:
    """Return what Envoy refuses and ends once its heap is full; None for `MAX_HEAP`."""
    bounds = heap or HeapBounds(MAX_HEAP)
    return {
        "refresh_interval": "0.250s",
        "resource_monitors": [
            CONNECTIONS,
            {
                "name": HEAP,
                "typed_config": typed(f"{_MONITORS}.fixed_heap.v3.FixedHeapConfig", max_heap_size_bytes=bounds.size),
            },
        ],
        "actions": [
            _action("shrink_heap", _above(0.8)),
            _action("disable_http_keepalive", _above(0.85)),
            _action("reset_high_memory_stream", _between(0.85, 0.98)),
            _action("stop_accepting_requests", _above(0.9)),
            *([_STALLED_ENDED] if bounds.ends_stalled else []),
            _action("stop_accepting_connections", _above(0.95)),
        ],
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": _LEAST_TRACKED},
    }
