"""Envoy configuration of HTTP to the backends of a cluster; its TLS is in `tls`."""

from __future__ import annotations

from locallb.envoy.document import Message, typed
from locallb.model.http.backends import HttpBackends, Speaks

_HTTP1_IDLE = "4s"
"""Seconds after which an idle connection to a backend is closed: before usual backends do (5 s and more), so that no
request meets a connection that is just being closed."""
_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def options(http: HttpBackends) -> Message:
    """Make the field of a cluster that says which HTTP its backends understand."""
    if http.speaks is Speaks.HTTP2:
        version = typed(_OPTIONS, explicit_http_config={"http2_protocol_options": {}})
    else:
        version = typed(
            _OPTIONS,
            explicit_http_config={"http_protocol_options": {}},
            common_http_protocol_options={"idle_timeout": _HTTP1_IDLE},
        )
    return {"typed_extension_protocol_options": {_OPTIONS: version}}
