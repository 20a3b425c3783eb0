"""Parses Gateways, GatewayClasses and ListenerSets. Never raises: a malformed object keeps its problem, or is dropped.

Only a name is needed; an object without a usable one can't get a status. Not here: routes
(`routes`), policies (`policies`), and which kinds a cluster has (`kinds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

from locallb.gateway.fault_annotation import fault_in
from locallb.gateway.parsing.fields import group_of, hostname, items, kind_of, name_of, namespace_of, texts
from locallb.gateway.parsing.gateway_tls import client_certificate, validations
from locallb.gateway.parsing.references import LARGEST_PORT, reference
from locallb.model.fields import FieldError, Fields
from locallb.model.formatting import shown
from locallb.model.gateway.objects import (
    GROUP,
    Gateway,
    GatewayClass,
    Listener,
    ListenerSet,
    ListenerTls,
    Meta,
    Named,
    TlsMode,
    WantedAddress,
)
from locallb.model.gateway.policies import ReferenceGrant
from locallb.model.gateway.selection import Allowed, From, Requirement, Selector
from locallb.model.identities import IPAddress, Uid

_MOST_LISTENERS = 64
_MOST = 16


def parse_meta(data: Mapping[object, object], *, namespaced: bool = True) -> Meta | None:
    """Read metadata; None where the object has no usable name, to which a status could be written."""
    try:
        metadata = Fields.of("metadata", data.get("metadata"))
        key = Named(namespace_of(metadata, "default") if namespaced else "", name_of(metadata))
        annotations = metadata.texts("annotations")
        return Meta(
            key,
            Uid(metadata.text("uid")),
            metadata.integer("generation", 0, 2**63, 0),
            metadata.text("creationTimestamp"),
            metadata.get("deletionTimestamp") is not None,
            metadata.texts("labels"),
            annotations,
            fault_in(annotations),
        )
    except FieldError:
        return None


def spec_of(data: Mapping[object, object]) -> Fields:
    """Return an object's spec. Raises FieldError."""
    return Fields.of("spec", data.get("spec"))


def parse_class(meta: Meta, data: Mapping[object, object]) -> GatewayClass:
    """Read a GatewayClass; one that names no controller belongs to none."""
    try:
        spec = spec_of(data)
        return GatewayClass(meta, spec.text("controllerName"), spec.get("parametersRef") is not None)
    except FieldError:
        return GatewayClass(meta, "")


def parse_gateway(meta: Meta, data: Mapping[object, object]) -> Gateway:
    """Read a Gateway."""
    spec = Fields("spec", {})
    try:
        spec = spec_of(data)
        infrastructure, tls = spec.inner("infrastructure"), spec.inner("tls")
        unsupported = [spec.at("defaultScope")] if spec.text("defaultScope") not in {"", "None"} else []
        return Gateway(
            meta,
            name_of(spec, "gatewayClassName"),
            parse_listeners(spec, meta.key.namespace),
            tuple(_address(item) for item in items(spec, "addresses", _MOST)),
            _allowed(spec.inner("allowedListeners"), From.NONE),
            infrastructure.texts("labels"),
            infrastructure.texts("annotations"),
            infrastructure.get("parametersRef") is not None,
            validations(tls.inner("frontend"), meta.key.namespace),
            client_certificate(tls.inner("backend"), meta.key.namespace),
            tuple(unsupported),
        )
    except FieldError as error:
        name = spec.get("gatewayClassName")
        return Gateway(meta, name if isinstance(name, str) else "", problem=str(error))


def parse_listener_set(meta: Meta, data: Mapping[object, object]) -> ListenerSet | None:
    """Read a ListenerSet; None where it names no Gateway."""
    try:
        spec = spec_of(data)
        parent = reference(spec.inner("parentRef"), GROUP, "Gateway", meta.key.namespace)
    except FieldError:
        return None
    try:
        return ListenerSet(meta, parent, parse_listeners(spec, meta.key.namespace))
    except FieldError as error:
        return ListenerSet(meta, parent, problem=str(error))


def parse_listeners(spec: Fields, namespace: str) -> tuple[Listener, ...]:
    """Read listeners. Raises FieldError for what are none, or for two of one name."""
    listeners = tuple(_listener(item, namespace) for item in items(spec, "listeners", _MOST_LISTENERS))
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise FieldError(f"{spec.at('listeners')} has {shown(name)} twice; give each a name of its own")
    if not listeners:
        raise FieldError(f"{spec.at('listeners')} is empty; give it a listener")
    return listeners


def _listener(fields: Fields, namespace: str) -> Listener:
    name, protocol = name_of(fields), fields.text("protocol")
    port = fields.integer("port", 1, LARGEST_PORT)
    try:
        return Listener(
            name,
            port,
            protocol,
            hostname(fields.at("hostname"), fields.text("hostname")),
            _tls(fields.inner("tls"), namespace) if fields.get("tls") is not None else None,
            _allowed(fields.inner("allowedRoutes"), From.SAME),
        )
    except FieldError as error:
        return Listener(name, port, protocol, problem=str(error))


def _tls(fields: Fields, namespace: str) -> ListenerTls:
    certificates = (reference(item, "", "Secret", namespace) for item in items(fields, "certificateRefs", 64))
    return ListenerTls(fields.choice("mode", TlsMode.TERMINATE), tuple(certificates), fields.texts("options"))


def _allowed(fields: Fields, default: From) -> Allowed:
    namespaces = fields.inner("namespaces")
    choice = namespaces.choice("from", default)
    kinds = tuple((group_of(item, GROUP), kind_of(item, "")) for item in items(fields, "kinds", 8))
    return Allowed(choice, _selector(namespaces.inner("selector")), kinds)


def _selector(fields: Fields) -> Selector:
    requirements = (
        Requirement(
            item.text("key"),
            item.text("operator"),
            frozenset(texts(item, "values", 1000)),
        )
        for item in items(fields, "matchExpressions", 100)
    )
    return Selector(fields.texts("matchLabels"), tuple(requirements))


def _address(fields: Fields) -> WantedAddress:
    kind, text = fields.text("type") or "IPAddress", fields.text("value")
    return WantedAddress(text, kind, _ip(text) if kind == "IPAddress" else None)


def _ip(text: str) -> IPAddress | None:
    try:
        return ip_address(text) if "%" not in text else None
    except ValueError:
        return None


def parse_grant(meta: Meta, data: Mapping[object, object]) -> ReferenceGrant | None:
    """Read a ReferenceGrant; one that can't be understood grants nothing."""
    try:
        spec = spec_of(data)
        sources = frozenset(
            (group_of(item, ""), kind_of(item, ""), namespace_of(item, "")) for item in items(spec, "from", _MOST)
        )
        targets = frozenset(
            (group_of(item, ""), kind_of(item, ""), item.text("name")) for item in items(spec, "to", _MOST)
        )
    except FieldError:
        return None
    return ReferenceGrant(meta.key.namespace, sources, targets)
