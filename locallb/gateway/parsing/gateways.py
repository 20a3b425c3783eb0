"""Parses Gateways, GatewayClasses, ListenerSets and ReferenceGrants, with their metadata and TLS settings.

Parsers of objects never raise: a malformed object keeps its problem, or is dropped. Only a name is needed; an object
without a usable one can't get a status.

Not here: routes (`routes`), policies (`policies`), the kinds that are read (`gateway.kinds`), and whether named
certificates can be used (`gateway.listeners`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from ipaddress import ip_address

from msgspec.structs import replace

from locallb.gateway.parsing.fields import (
    LARGEST_PORT,
    group_of,
    hostname,
    is_name,
    items,
    kind_of,
    name_of,
    namespace_of,
    odd_host,
    raw_items,
    reference,
    texts,
)
from locallb.model.faults import fault_in
from locallb.model.fields import FieldError, Fields, as_choice, at
from locallb.model.gateway_objects import (
    GROUP,
    NO_HOST,
    Allowed,
    From,
    FrontendValidation,
    Gateway,
    GatewayClass,
    GatewayListener,
    ListenerSet,
    ListenerTls,
    Meta,
    Named,
    Reference,
    ReferenceGrant,
    Requirement,
    Selector,
    TlsMode,
    ValidationMode,
    WantedAddress,
)
from locallb.model.identities import KEY_PREFIX, IPAddress, Uid
from locallb.model.texts import fault_of, shown

_MAX_PORTS, _MAX_AUTHORITIES = 64, 16


def validations(frontend: Fields, namespace: str) -> Mapping[int, FrontendValidation | None]:
    """Return the client certificate validation by port; 0 is every other port.

    Raises FieldError, except for faults of single ports.
    """
    requested = {0: _validation(frontend.inner("default"), namespace)}
    for item in items(frontend, "perPort", _MAX_PORTS):
        port = item.integer("port", 1, LARGEST_PORT)
        if port in requested:
            raise FieldError(f"{frontend.at('perPort')} has port {port} twice; write each once")
        requested[port] = _validation(item.inner("tls"), namespace)
    return requested if any(requested.values()) else {}


def _validation(tls: Fields, namespace: str) -> FrontendValidation | None:
    if tls.get("validation") is None:
        return None
    try:
        fields = tls.inner("validation")
        named = items(fields, "caCertificateRefs", _MAX_AUTHORITIES)
        authorities = tuple(reference(item, "", "ConfigMap", namespace) for item in named)
        mode = fields.choice("mode", ValidationMode.VALID_ONLY)
    except FieldError as error:
        return FrontendValidation((), problem=str(error))
    empty = f"{fields.at('caCertificateRefs')} is empty; name a ConfigMap with a ca.crt"
    return FrontendValidation(authorities, mode, "" if authorities else empty)


def client_certificate(backend: Fields, namespace: str) -> Reference | None:
    """Return the certificate that backends are shown. Raises FieldError."""
    if backend.get("clientCertificateRef") is None:
        return None
    return reference(backend.inner("clientCertificateRef"), "", "Secret", namespace)


_MAX_LISTENERS = 64
_MAX = 16
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


class _Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    NONE = ""


_WITH_VALUES = frozenset({_Operator.IN, _Operator.NOT_IN})
CERTIFICATE_OPTION, LOCAL = f"{KEY_PREFIX}certificate", "local"
"""The option of a listener without a Secret, so that an API accepts it: this user's own authority certifies it."""


def parse_meta(data: Mapping[object, object], *, namespaced: bool = True) -> Meta | None:
    """Read metadata; None where the object has no usable name, to which a status could be written.

    Anything else that isn't understood is the object's problem, as it must not vanish: others would get its requests.
    """
    try:
        metadata = Fields.of("metadata", data.get("metadata"))
        key = Named(namespace_of(metadata, "default") if namespaced else "", name_of(metadata))
    except FieldError:
        return None
    try:
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
    except FieldError as error:
        return Meta(key, problem=str(error))


def spec_of(data: Mapping[object, object]) -> Fields:
    """Return an object's spec. Raises FieldError."""
    if fault := fault_of(data):
        raise FieldError(fault)
    return Fields.of("spec", data.get("spec"))


def parse_class(meta: Meta, data: Mapping[object, object]) -> GatewayClass:
    """Read a GatewayClass; one that names no controller belongs to none."""
    try:
        spec = spec_of(data)
        return GatewayClass(meta, spec.text("controllerName"), spec.get("parametersRef") is not None)
    except FieldError:
        return GatewayClass(meta, "")


def parse_gateway(meta: Meta, data: Mapping[object, object]) -> Gateway:
    problems = list[str]()
    try:
        spec = spec_of(data)
        listeners = parse_listeners(spec, meta.key.namespace, problems)
        infrastructure, tls = spec.inner("infrastructure"), spec.inner("tls")
        unsupported = [spec.at("defaultScope")] if spec.text("defaultScope") not in {"", "None"} else []
        return Gateway(
            meta,
            name_of(spec, "gatewayClassName"),
            listeners,
            tuple(_address(item) for item in items(spec, "addresses", _MAX)),
            _allowed(spec.inner("allowedListeners"), From.NONE),
            infrastructure.texts("labels"),
            infrastructure.texts("annotations"),
            infrastructure.get("parametersRef") is not None,
            validations(tls.inner("frontend"), meta.key.namespace),
            client_certificate(tls.inner("backend"), meta.key.namespace),
            tuple(unsupported),
            "; ".join(problems),
        )
    except FieldError as error:
        name = at(data, "spec", "gatewayClassName")
        return Gateway(meta, name if isinstance(name, str) else "", problem=str(error))


def parse_listener_set(meta: Meta, data: Mapping[object, object]) -> ListenerSet | None:
    """Read a ListenerSet; None where it names no Gateway."""
    try:
        spec = Fields.of("spec", data.get("spec"))
        parent = reference(spec.inner("parentRef"), GROUP, "Gateway", meta.key.namespace)
    except FieldError:
        return None
    problems = [fault] if (fault := fault_of(data)) else []
    listeners = parse_listeners(spec, meta.key.namespace, problems)
    problem = "; ".join(problems)
    return ListenerSet(meta, parent, refused_listeners(listeners, problem) if problem else listeners, problem)


def refused_listeners(listeners: Iterable[GatewayListener], problem: str) -> tuple[GatewayListener, ...]:
    """Return listeners as unserved ones, each for its own problem or this one."""
    return tuple(replace(listener, problem=listener.problem or problem) for listener in listeners)


def parse_listeners(spec: Fields, namespace: str, problems: list[str]) -> tuple[GatewayListener, ...]:
    """Read listeners, the first of each name; note which are none, and what is wrong with all of them."""
    listeners: dict[str, GatewayListener] = {}
    try:
        entries = raw_items(spec, "listeners", _MAX_LISTENERS)
    except FieldError as error:
        problems.append(str(error))
        return ()
    for path, item in entries:
        try:
            listener = _listener(Fields.of(path, item), namespace)
        except FieldError as error:
            problems.append(str(error))
            continue
        if listener.name in listeners:
            why = f"{spec.at('listeners')} has {shown(listener.name)} twice; give each a name of its own"
            problems += [why] if why not in problems else []
        listeners.setdefault(listener.name, listener)
    if not entries:
        problems.append(f"{spec.at('listeners')} is empty; give it a listener")
    return tuple(listeners.values())


def _listener(fields: Fields, namespace: str) -> GatewayListener:
    """Parse a listener. The valid parts of one with a problem stay: no other listener gets its requests."""
    name, protocol = name_of(fields), fields.text("protocol")
    listener = GatewayListener(name, fields.integer("port", 1, LARGEST_PORT), protocol)
    problems: list[str] = []
    try:
        listener = replace(listener, hostname=hostname(fields.at("hostname"), fields.text("hostname")))
    except FieldError as error:
        listener = replace(listener, hostname=odd_host(fields.get("hostname")) or NO_HOST)
        problems.append(str(error))
    try:
        listener = replace(listener, allowed=_allowed(fields.inner("allowedRoutes"), From.SAME))
    except FieldError as error:
        listener = replace(listener, allowed=Allowed(From.NONE))
        problems.append(str(error))
    try:
        tls = _tls(fields.inner("tls"), namespace) if fields.get("tls") is not None else None
        listener = replace(listener, tls=tls)
    except FieldError as error:
        problems.append(str(error))
    return replace(listener, problem="; ".join(problems))


def _tls(fields: Fields, namespace: str) -> ListenerTls:
    certificates = (reference(item, "", "Secret", namespace) for item in items(fields, "certificateRefs", 64))
    options = fields.texts("options")
    if (option := options.get(CERTIFICATE_OPTION, LOCAL)) != LOCAL:
        at = f"{fields.at('options')}[{CERTIFICATE_OPTION}]"
        raise FieldError(f"{at} is {shown(option)}; write {LOCAL}, for a certificate of this user's own authority")
    return ListenerTls(fields.choice("mode", TlsMode.TERMINATE), tuple(certificates), options)


def _allowed(fields: Fields, default: From) -> Allowed:
    namespaces = fields.inner("namespaces")
    choice = namespaces.choice("from", default)
    kinds = tuple((group_of(item, GROUP), kind_of(item, "")) for item in items(fields, "kinds", 8))
    is_selected = choice is From.SELECTOR and namespaces.get("selector") is not None
    return Allowed(choice, _selector(namespaces.inner("selector")) if is_selected else None, kinds)


def _selector(fields: Fields) -> Selector:
    requirements = tuple(map(_requirement, items(fields, "matchExpressions", 100)))
    labels = fields.texts("matchLabels")
    for key, value in labels.items():
        _check_label(f"{fields.at('matchLabels')}[{shown(key)}]", key, value)
    return Selector(labels, requirements)


def _requirement(fields: Fields) -> Requirement:
    """Read a requirement, by the rules of the API: a selector that breaks one of them selects nothing."""
    operator, key = as_choice(fields.at("operator"), fields.text("operator"), _Operator), fields.text("key")
    values = frozenset(texts(fields, "values", 1000))
    if operator in _WITH_VALUES and not values:
        raise FieldError(f"{fields.at('values')} is empty; {operator} compares with values, so give one")
    if operator not in _WITH_VALUES and values:
        raise FieldError(f"{fields.at('values')} has values; {operator} compares with none, so leave them out")
    for value in values or ("",):
        _check_label(fields.path, key, value)
    return Requirement(key, operator.value, values)


def _check_label(path: str, key: str, value: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if not _LABEL_NAME.fullmatch(name) or (slash and not is_name(prefix)):
        raise FieldError(f"{path} has the key {shown(key)}; give the name of a label")
    if value and not _LABEL_NAME.fullmatch(value):
        raise FieldError(f"{path} has the value {shown(value)}; give the value of a label")


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
            (group_of(item, ""), kind_of(item, ""), namespace_of(item, "")) for item in items(spec, "from", _MAX)
        )
        targets = frozenset(
            (group_of(item, ""), kind_of(item, ""), item.text("name")) for item in items(spec, "to", _MAX)
        )
    except FieldError:
        return None
    return ReferenceGrant(meta.key.namespace, sources, targets)
