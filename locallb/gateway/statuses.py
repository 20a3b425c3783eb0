"""The desired status of each Gateway API object, in the specification's terms: conditions, parents, addresses.

The status is made from the bindings and their outcome on this host, as plain data in the API's fields and without
times. The supported features of a GatewayClass have the names of the conformance suite, and a feature is listed when
every test of it passes; docs/conformance/README.md has the unsupported ones with the reasons.

Not here: times, and entries of other controllers (`status_patch`), and whether the proxy already serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from msgspec import Struct, field

from locallb.gateway.attachment import ParentVerdict, invalid
from locallb.gateway.backend_tls import BackendTlsPolicies
from locallb.gateway.listeners import BoundListener, intersection, is_allowed
from locallb.gateway.routes import Backends
from locallb.gateway.translation import BoundGateway
from locallb.model.fields import JsonObject
from locallb.model.gateway_objects import (
    CONTROLLER,
    GROUP,
    BackendTlsPolicy,
    GatewayClass,
    GatewayRoute,
    ListenerProtocol,
    ListenerSet,
    Meta,
    Named,
    Reference,
    ValidationMode,
)
from locallb.model.gateway_of_cluster import GatewayObjects
from locallb.model.identities import IPAddress
from locallb.model.reasons import (
    ACCEPTED,
    CONFLICTED,
    INSECURE_VALIDATION,
    INVALID,
    LISTENERS_NOT_VALID,
    OVERLAPPING_TLS,
    PARTIALLY_INVALID,
    PENDING,
    PROGRAMMED,
    RESOLVED,
    UNSUPPORTED,
    Condition,
    Failure,
    conditions,
    verdict,
)
from locallb.model.snapshot import PortKey

FEATURES = (
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetry",
    "HTTPRouteRetryBackendTimeout",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
)
"""In the order of their names, as the API asks."""


Status = JsonObject


class ApiStatus(NamedTuple):
    """The status of one object."""

    of: Reference
    meta: Meta
    status: Status
    gateway: Named | None = None
    """The Gateway that must be proven to serve before the status may be programmed; None if it waits for none."""


class GatewayResult(Struct, frozen=True):
    """Result of a Gateway on this host."""

    addresses: tuple[IPAddress, ...] = ()
    failure: Failure | None = None
    """The reason that it has no address, or isn't served at it."""
    ports: Mapping[PortKey, Failure] = field(default_factory=dict)
    """Reasons that its ports can't be bound."""
    ordered: tuple[Condition, ...] = ()
    """The fault that was ordered for it."""
    hostname: str = ""
    """The name that its status has next to the addresses; empty for none."""
    places: Mapping[PortKey, str] = field(default_factory=dict)
    """Where clients find ports that are mapped."""


def class_status(gateway_class: GatewayClass) -> ApiStatus:
    """Return the status of a GatewayClass of ours."""
    why = "parametersRef names parameters, and none are known here; leave it out"
    failure = Failure("InvalidParameters", why) if gateway_class.has_parameters else None
    status = {**conditions(verdict(ACCEPTED, failure)), "supportedFeatures": [{"name": name} for name in FEATURES]}
    return ApiStatus(Reference(GROUP, "GatewayClass", gateway_class.meta.key), gateway_class.meta, status)


def gateway_status(bound: BoundGateway, outcome: GatewayResult) -> ApiStatus:
    mine = [(number, listener) for number, listener in enumerate(bound.listeners) if listener.owner.kind == "Gateway"]
    listeners = [_listener(number, listener, bound, outcome) for number, listener in mine]
    accepted = [set_ for set_ in bound.sets if any(_is_fine(listener, outcome) for listener in _of(set_, bound))]
    status = {
        **conditions(*_gateway_conditions(bound, outcome, [listener for _, listener in mine])),
        "addresses": [*_addresses(outcome)],
        "listeners": listeners,
        "attachedListenerSets": len(accepted),
    }
    return ApiStatus(bound.gateway.reference, bound.gateway.meta, status)


def _addresses(outcome: GatewayResult) -> Iterator[Mapping[str, str]]:
    yield from ({"type": "IPAddress", "value": str(address)} for address in outcome.addresses)
    if outcome.hostname:
        yield {"type": "Hostname", "value": outcome.hostname}


def _gateway_conditions(
    bound: BoundGateway, outcome: GatewayResult, mine: Sequence[BoundListener]
) -> Iterator[Condition]:
    odd = [listener.listener.name for listener in mine if not _is_fine(listener, outcome)]
    reason = LISTENERS_NOT_VALID if odd else ACCEPTED
    message = f"look at the listeners {', '.join(odd)}" if odd else ""
    refused = Failure(INVALID, bound.failure.message) if bound.failure else None
    yield verdict(ACCEPTED, bound.failure, reason, message)
    yield verdict(PROGRAMMED, refused or outcome.failure, message=" ".join(map(str, outcome.addresses)))
    if bound.gateway.client_certificate:
        yield verdict(RESOLVED, bound.resolved or _unresolved(mine))
    if any(requested.mode is ValidationMode.INSECURE for requested in bound.gateway.validations.values() if requested):
        why = "clients without a certificate that its authorities signed are let in; use AllowValidOnly"
        yield Condition(INSECURE_VALIDATION, "True", "ConfigurationChanged", why)
    yield from outcome.ordered


def _unresolved(mine: Iterable[BoundListener]) -> Failure | None:
    odd = [listener.listener.name for listener in mine if listener.resolved]
    return Failure("ListenersNotResolved", f"look at the listeners {', '.join(odd)}") if odd else None


def _is_fine(listener: BoundListener, outcome: GatewayResult) -> bool:
    return listener.serves and (listener.listener.port, listener.transport) not in outcome.ports


def _listener(number: int, mine: BoundListener, bound: BoundGateway, outcome: GatewayResult) -> Status:
    blocked = outcome.ports.get((mine.listener.port, mine.transport))
    accepted = mine.conflict or mine.accepted or blocked
    programmed = accepted or (None if mine.serves else mine.resolved or Failure(INVALID, "nothing of it can be served"))
    if programmed and not mine.conflict:
        programmed = Failure(INVALID, programmed.message)
    elif not programmed and (failure := bound.failure or outcome.failure):
        programmed = Failure(PENDING, failure.message)
    written = [
        verdict(ACCEPTED, accepted),
        verdict(PROGRAMMED, programmed, message=outcome.places.get((mine.listener.port, mine.transport), "")),
        verdict(RESOLVED, mine.resolved),
        Condition(CONFLICTED, "True", *mine.conflict)
        if mine.conflict
        else Condition(CONFLICTED, "False", "NoConflicts", ""),
    ]
    if others := [other.listener.name for other in bound.listeners if _overlap(mine, other)]:
        why = f"its hostnames are those of {', '.join(others)} as well, so clients may reuse connections for both"
        written.append(Condition(OVERLAPPING_TLS, "True", "OverlappingHostnames", why))
    return {
        "name": mine.listener.name,
        "supportedKinds": [{"group": GROUP, "kind": kind.value} for kind in mine.kinds],
        "attachedRoutes": sum(attached.accepted for attached in bound.attachment.routes.get(number, ())),
        **conditions(*written),
    }


def _overlap(listener: BoundListener, other: BoundListener) -> bool:
    mine, theirs = listener.listener, other.listener
    both_https = mine.protocol == theirs.protocol == ListenerProtocol.HTTPS
    return other is not listener and both_https and mine.port == theirs.port and _meet(mine.hostname, theirs.hostname)


def _meet(hostname: str, other: str) -> bool:
    return intersection(hostname, other) is not None


def listener_set_status(
    set_: ListenerSet, bound: BoundGateway, outcome: GatewayResult, objects: GatewayObjects
) -> ApiStatus:
    """Return the status of a ListenerSet of a Gateway."""
    serves = not outcome.failure and is_allowed(set_, bound.gateway, objects.namespaces)
    gateway = bound.gateway.meta.key if serves else None
    return ApiStatus(set_.reference, set_.meta, _set_status(set_, bound, outcome, objects), gateway)


def _set_status(set_: ListenerSet, bound: BoundGateway, outcome: GatewayResult, objects: GatewayObjects) -> Status:
    if not is_allowed(set_, bound.gateway, objects.namespaces):
        why = f"Gateway {bound.gateway.meta.key} doesn't allow it; look at its allowedListeners"
        return conditions(*(verdict(kind, Failure("NotAllowed", why)) for kind in (ACCEPTED, PROGRAMMED)))
    mine = {number: listener for number, listener in enumerate(bound.listeners) if listener.owner == set_.reference}
    odd = [listener.listener.name for listener in mine.values() if not _is_fine(listener, outcome)]
    refused = Failure(INVALID, set_.problem) if set_.problem else None
    if refused is None and len(odd) == len(mine):
        refused = Failure(LISTENERS_NOT_VALID, "none of its listeners can be served; look at their conditions")
    message = f"look at the listeners {', '.join(odd)}" if odd else ""
    parent = Failure("ParentNotProgrammed", outcome.failure.message) if outcome.failure else None
    accepted = verdict(ACCEPTED, refused, LISTENERS_NOT_VALID if odd else ACCEPTED, message)
    return {
        **conditions(accepted, verdict(PROGRAMMED, refused or parent)),
        "listeners": [_listener(number, listener, bound, outcome) for number, listener in mine.items()],
    }


def _of(set_: ListenerSet, bound: BoundGateway) -> Iterable[BoundListener]:
    return (listener for listener in bound.listeners if listener.owner == set_.reference)


def verdicts_by_route(bound: Iterable[BoundGateway]) -> Sequence[tuple[Reference, tuple[ParentVerdict, ...]]]:
    """Return what the parents of each route say, in the order of the routes' names."""
    verdicts: dict[Reference, tuple[ParentVerdict, ...]] = {}
    for gateway in bound:
        for reference, stated in verdicts_of(gateway).items():
            verdicts[reference] = (*verdicts.get(reference, ()), *stated)
    return sorted(verdicts.items(), key=itemgetter(0))


def verdicts_of(bound: BoundGateway) -> Mapping[Reference, tuple[ParentVerdict, ...]]:
    """Return the verdicts of one Gateway, and its ListenerSets, on each route."""
    verdicts: dict[Reference, tuple[ParentVerdict, ...]] = {}
    for view in bound.attachment.verdicts:
        verdicts[view.route.reference] = (*verdicts.get(view.route.reference, ()), view)
    return verdicts


def gateways_by_policy(
    bound: Iterable[BoundGateway], policies: BackendTlsPolicies
) -> Sequence[tuple[BackendTlsPolicy, tuple[Named, ...]]]:
    """Return the policies that are about a Service of any Gateway, with those Gateways, in the order of names."""
    gateways: dict[Named, tuple[BackendTlsPolicy, tuple[Named, ...]]] = {}
    for gateway in bound:
        for policy in policies.about(gateway.services):
            _, before = gateways.get(policy.meta.key, (policy, ()))
            gateways[policy.meta.key] = policy, (*before, gateway.gateway.meta.key)
    return [gateways[name] for name in sorted(gateways)]


def route_status(verdicts: Sequence[ParentVerdict], backends: Backends) -> ApiStatus:
    """Return the status of a route of which its parents say that."""
    route = verdicts[0].route
    resolved = next(backends.failures(route, opened=any(view.ends_tls for view in verdicts)), None)
    in_order = sorted(verdicts, key=lambda view: route.parents.index(view.parent))
    return ApiStatus(route.reference, route.meta, {"parents": [_parent(view, resolved) for view in in_order]})


def _parent(view: ParentVerdict, resolved: Failure | None) -> Status:
    written = [verdict(ACCEPTED, view.accepted), verdict(RESOLVED, resolved)]
    if not view.accepted and (dropped := _dropped(view.route)):
        written.append(Condition(PARTIALLY_INVALID, "True", UNSUPPORTED, dropped))
    return {"parentRef": dict(view.parent.written), "controllerName": CONTROLLER, **conditions(*written)}


def _dropped(route: GatewayRoute) -> str:
    """Return which rules of a valid route aren't served."""
    problems = [rule.problem for rule in route.rules if rule.problem]
    if not problems or invalid(route):
        return ""
    return f"Dropped Rule: requests that it matches are answered 500: {'; '.join(problems)}"
