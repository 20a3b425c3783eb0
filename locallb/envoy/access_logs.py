"""Access logs of connections and requests, which Envoy sends to a socket in the proxy's directory on request.

Every filter chain gets a copy with the log, which matches first, because it names all addresses: so connections that
were open when the log was requested stay on an unchanged chain. A gate passes as many lines as its file says, and then
no more until that is written again: closed it costs nothing, and an active reader renews it. Pure. Not here: the reader
(`traffic.reading`).
"""

from __future__ import annotations

from locallb.envoy.document import Message, subscription, text, typed
from locallb.model.fields import JsonObject

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
    """Make the chain that is like another one, and tells the reader behind `cluster` of each connection or request."""
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
