"""Envoy configuration of a route's options: faults, CORS, source ranges, session persistence, retries and mirrors.

A fault comes and goes with the routes alone: each HTTP listener has the fault filter, disabled, and routes enable and
configure it. So no listener changes, and requests on open connections meet the fault.

Not here: the options as data (`model/http_routes`), faults as data (`model/faults`), and the routes (`http_routes`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count

from locallb.envoy.document import Json, Message, typed
from locallb.envoy.listeners import ranges
from locallb.model.faults import Fault
from locallb.model.http_routes import Cors, Forward, HttpRoute, Mirror, RetryRule, SessionAffinity, SessionKind
from locallb.model.identities import IPNetwork
from locallb.patterns import pattern

FAULT = "local-lb.fault"
"""The filter's name, by which routes mean it."""
_FILTERS = "envoy.extensions.filters.http"
_MATCHER = "xds.type.matcher.v3"
_DELAYED = pattern(r'"fixed_delay":\s*"(\d+(?:\.\d+)?)s"')


def may_fail(listeners: str) -> bool | None:
    """Return whether listeners, as their texts are written, have the filter; None where none of them is for HTTP."""
    return f'"{FAULT}"' in listeners if "http_connection_manager" in listeners else None


def longest_delay(routes: str) -> float:
    """Return the seconds that a route table, as its text is written, has requests wait at most; 0 for none."""
    return max((float(delay) for delay in _DELAYED.findall(routes)), default=0)


def dormant() -> Message:
    """Make the filter of a listener: disabled, until a route enables it."""
    composite: Message = {
        "name": "envoy.filters.http.composite",
        "typed_config": typed(f"{_FILTERS}.composite.v3.Composite"),
    }
    waiting = typed("envoy.extensions.common.matching.v3.ExtensionWithMatcher", extension_config=composite)
    return {"name": FAULT, "typed_config": waiting, "disabled": True}


def awake(fault: Fault) -> Message:
    """Make the field of a route table that switches the filter on, for requests before the end.

    Each request's time is compared with the end, so that the fault ends without an update. Envoy draws the shares at
    random.
    """
    acted = typed(f"{_FILTERS}.composite.v3.ExecuteFilterAction", typed_config=_injection(fault))
    matcher: Message = {
        "predicate": {"single_predicate": _before(fault.until)},
        "on_match": {"action": {"name": "fault", "typed_config": acted}},
    }
    matching = typed(
        "envoy.extensions.common.matching.v3.ExtensionWithMatcherPerRoute",
        xds_matcher={"matcher_list": {"matchers": [matcher]}},
    )
    return {FAULT: typed("envoy.config.route.v3.FilterConfig", config=matching)}


def _injection(fault: Fault) -> Message:
    done: dict[str, Json] = {}
    if fault.delay:
        done["delay"] = {"fixed_delay": duration(fault.delay.milliseconds), "percentage": _share(fault.delay.share)}
    if fault.status:
        done["abort"] = {"http_status": fault.status.status, "percentage": _share(fault.status.share)}
    return {"name": "envoy.filters.http.fault", "typed_config": typed(f"{_FILTERS}.fault.v3.HTTPFault", **done)}


def _share(share: int) -> Message:
    return {"numerator": share, "denominator": "TEN_THOUSAND"}


def _before(until: str) -> Message:
    """Make the predicate `request.time < timestamp(until)`; Envoy takes expressions here only as they are parsed."""
    numbers = count(1)

    def node(**stated: Message) -> Message:
        return {"id": str(next(numbers)), **stated}

    def called(function: str, *given: Message) -> Message:
        return node(call_expr={"function": function, "args": given})

    time = node(select_expr={"operand": node(ident_expr={"name": "request"}), "field": "time"})
    end = called("timestamp", node(const_expr={"string_value": until}))
    compared = typed(f"{_MATCHER}.CelMatcher", expr_match={"cel_expr_parsed": {"expr": called("_<_", time, end)}})
    return {
        "input": {"name": "request", "typed_config": typed(f"{_MATCHER}.HttpAttributesCelMatchInput")},
        "custom_match": {"name": "time", "typed_config": compared},
    }


CORS, SESSION = "envoy.filters.http.cors", "envoy.filters.http.stateful_session"
SOURCES = "envoy.filters.http.rbac"
_STATES = "envoy.extensions.http.stateful_session"
_PASSED_OVER = 3
"""Backends that didn't take a request, before the client hears of it."""
_NOT_SUPPORTED = "connect-failure,refused-stream,reset-before-request"
"""What no backend has seen, so that nothing happens twice."""
_FULL = 1_000_000


def per_filter(route: HttpRoute) -> Mapping[str, Message]:
    """Return what filters do differently in this route."""
    session = route.action.session if isinstance(route.action, Forward) else None
    return {
        **({SOURCES: _sources(route.sources)} if route.sources else {}),
        **({CORS: _cors(route.cors)} if route.cors else {}),
        **({SESSION: _session(session)} if session else {}),
    }


def retries(retry: RetryRule | None, attempt_timeout: int) -> Message:
    """Make the RetryPolicy: a backend that didn't take the request is passed over, more is tried on demand."""
    more: dict[str, Json] = {}
    conditions, attempts = _NOT_SUPPORTED, _PASSED_OVER
    if retry:
        conditions, attempts = f"{_NOT_SUPPORTED},reset", retry.attempts
        if retry.codes:
            conditions += ",retriable-status-codes"
            more["retriable_status_codes"] = list(retry.codes)
        if retry.backoff:
            more["retry_back_off"] = {
                "base_interval": duration(retry.backoff),
                "max_interval": duration(retry.backoff * 10),
            }
    if attempt_timeout:
        more["per_try_timeout"] = duration(attempt_timeout)
    return {
        "retry_on": conditions,
        "num_retries": attempts,
        "retry_host_predicate": [_OTHER],
        "host_selection_retry_max_attempts": "3",
        **more,
    }


_OTHER: Message = {
    "name": "envoy.retry_host_predicates.previous_hosts",
    "typed_config": typed("envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"),
}


def mirror(copies: Mirror) -> Message:
    """Make the RequestMirrorPolicy: the copy has the same host."""
    share: Message = {
        "runtime_fraction": {"default_value": {"numerator": copies.per_million, "denominator": "MILLION"}}
    }
    return {
        "cluster": copies.upstream,
        "disable_shadow_host_suffix_append": True,
        **(share if copies.per_million < _FULL else {}),
    }


def duration(milliseconds: int) -> str:
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}s"


def _sources(sources: Sequence[IPNetwork]) -> Message:
    principals: Sequence[Message] = [{"direct_remote_ip": address_range} for address_range in ranges(sources)]
    policy: Message = {"permissions": [{"any": True}], "principals": principals}
    rules: Message = {"action": "ALLOW", "policies": {"sources": policy}}
    return typed("envoy.extensions.filters.http.rbac.v3.RBACPerRoute", rbac={"rules": rules})


def _cors(cors: Cors) -> Message:
    # Of `*` alone Envoy makes what the client asked for, which is right with credentials as well.
    listed = {"allow_methods": cors.methods, "allow_headers": cors.headers, "expose_headers": cors.exposed}
    return typed(
        "envoy.extensions.filters.http.cors.v3.CorsPolicy",
        allow_origin_string_match=[_origin(origin) for origin in cors.origins],
        allow_credentials=cors.credentials,
        max_age=str(cors.max_age),
        forward_not_matching_preflights=False,
        **{name: "*" if "*" in terms else ", ".join(terms) for name, terms in listed.items() if terms},
    )


def _origin(origin: str) -> Message:
    if "*" not in origin:
        return {"exact": origin}
    return {"safe_regex": {"regex": ".*".join(re.escape(piece) for piece in origin.split("*"))}}


def _session(session: SessionAffinity) -> Message:
    if session.kind is SessionKind.HEADER:
        state = typed(f"{_STATES}.header.v3.HeaderBasedSessionState", name=session.name)
    else:
        cookie: Message = {"name": session.name, "path": session.path or "/"}
        retained: Message = {"ttl": duration(session.lifetime)} if session.lifetime else {}
        state = typed(f"{_STATES}.cookie.v3.CookieBasedSessionState", cookie={**cookie, **retained})
    named: Message = {"name": f"envoy.http.stateful_session.{session.kind.lower()}", "typed_config": state}
    return typed(
        "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute",
        stateful_session={"session_state": named},
    )
