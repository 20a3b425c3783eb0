"""Fault injection for requests: a filter that is disabled by default, enabled by routes until the fault's end.

Listeners have the filter, disabled. Routes enable and configure it, so that a fault comes and goes with them: no
listener changes, and requests on open connections meet it. Each request's time is compared with the end, so that the
fault ends without an update. Envoy draws the shares at random. Not here: the override itself.
"""

from __future__ import annotations

import re
from itertools import count

from locallb.envoy.document import Json, Message, typed
from locallb.envoy.http.policies import seconds
from locallb.model.faults import Fault

FAULT = "local-lb.fault"
"""The filter's name, by which routes mean it."""
_FILTERS = "envoy.extensions.filters.http"
_MATCHER = "xds.type.matcher.v3"
_DELAYED = re.compile(r'"fixed_delay":\s*"(\d+(?:\.\d+)?)s"')


def may_fail(listeners: str) -> bool | None:
    """Return whether listeners, as their texts are written, have the filter; None where none of them is for HTTP."""
    return f'"{FAULT}"' in listeners if "http_connection_manager" in listeners else None


def longest_delay(routes: str) -> float:
    """Return the seconds that a route table, as its text is written, has requests wait at most; 0 for none."""
    return max((float(delay) for delay in _DELAYED.findall(routes)), default=0)


def dormant() -> Message:
    """Make the filter of a listener."""
    composite: Message = {
        "name": "envoy.filters.http.composite",
        "typed_config": typed(f"{_FILTERS}.composite.v3.Composite"),
    }
    waiting = typed("envoy.extensions.common.matching.v3.ExtensionWithMatcher", extension_config=composite)
    return {"name": FAULT, "typed_config": waiting, "disabled": True}


def awake(fault: Fault) -> Message:
    """Make the field of a route table that switches the filter on, for requests before the end."""
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
        done["delay"] = {"fixed_delay": seconds(fault.delay.milliseconds), "percentage": _share(fault.delay.share)}
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
