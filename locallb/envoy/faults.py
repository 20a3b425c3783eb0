"""Fault injection for TCP connections, by an additional filter chain.

The chain equals the serving one except for filters that draw a number for each connection, and it matches first because
it names the port: so open connections stay on their chain, which isn't touched by a fault that begins or ends. Each
filter compares the time of the connection with the fault's end, so that the fault ends without an update; from then on
the chain serves as the other does. Not here: the override itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from locallb.envoy.document import Message, typed
from locallb.model.faults import WHOLE, Fault
from locallb.model.serving import Listener

NO_OWNER = "local-lb-nobody"
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
    """Make the chain with what is ordered for a listener, from the chain that leads to its upstream."""
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
    return _before(detour.until, f'"{detour.upstream or NO_OWNER}"', upstream) if detour else upstream


def _noted(fault: Fault | None, leading: str) -> Message:
    """Draw and note what becomes of each connection that is made before the end."""
    notes = {_CLUSTER: leading}
    if fault:
        refused, hanging = fault.refuse, fault.refuse + fault.hang
        fate = f'{_DRAWN} < {refused} ? "" : {_DRAWN} < {hanging} ? "{_HANG}" : {_DRAWN} < {hanging + fault.reset}'
        notes = {
            _CLUSTER: _before(fault.until, f'{_DRAWN} < {refused} ? "{NO_OWNER}" : {leading}', leading),
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
