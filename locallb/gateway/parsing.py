"""Parses Gateway API's objects but routes: Gateways, classes, ListenerSets, policies, grants, and their common fields.

Faults raise FieldError with the value and the remedy, by the bounds of the API's CRDs, because manifests never passed
an API server. Not here: routes (`route_parsing`), and which references are allowed (`gateway.listeners`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from locallb.model import http_checks
from locallb.model.faults import fault_in
from locallb.model.fields import LONGEST_NAME, FieldError, Fields, as_choice, as_text, at, is_name
from locallb.model.gateway_objects import (
    GROUP,
    NO_HOST,
    Allowed,
    BackendRef,
    BackendTlsPolicy,
    From,
    FrontendValidation,
    Gateway,
    GatewayClass,
    GatewayListener,
    ListenerSet,
    ListenerTls,
    Meta,
    Named,
    PolicyTarget,
    Reference,
    ReferenceGrant,
    Requirement,
    Selector,
    TlsMode,
    ValidationMode,
    WantedAddress,
)
from locallb.model.gateway_of_cluster import AuthorityBundle, BackendService, Namespace, TlsSecret
from locallb.model.http_routes import MAX_WEIGHT
from locallb.model.identities import KEY_PREFIX, Digest, IPAddress, Protocol, Uid
from locallb.model.objects import ServicePort
from locallb.model.texts import fault_of, shown
from locallb.patterns import pattern

LARGEST_PORT = 65535


def reference(fields: Fields, group: str, kind: str, namespace: str) -> Reference:
    """Return a reference; fields that it omits are as given."""
    key = Named(namespace_of(fields, namespace), name_of(fields))
    return Reference(group_of(fields, group), kind_of(fields, kind), key)


def backend_ref(fields: Fields, namespace: str) -> BackendRef:
    """Return a reference to a backend, a Service by default."""
    to = reference(fields, "", "Service", namespace)
    return BackendRef(to.group, to.kind, *to.key, optional_port(fields), fields.integer("weight", 0, MAX_WEIGHT, 1))


def optional_port(fields: Fields) -> int:
    """Return a port; 0 if absent."""
    return fields.integer("port", 1, LARGEST_PORT) if fields.get("port") is not None else 0


_Made = TypeVar("_Made")
_DURATION = pattern(r"([0-9]{1,5}(h|m|s|ms)){1,4}")
_PART = pattern(r"([0-9]+)(ms|h|m|s)")
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_KIND = pattern(r"[a-zA-Z]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?")


def made(fields: Fields, make: Callable[[], _Made]) -> _Made:
    """Return the result of `make`. Raises FieldError if the proxy's model refuses it with ValueError."""
    try:
        return make()
    except ValueError as error:
        raise FieldError(f"{fields.path}: {error}") from None


def items(fields: Fields, name: str, maximum: int) -> Iterator[Fields]:
    """Return the objects of a list with at most `maximum` items."""
    for path, item in raw_items(fields, name, maximum):
        yield Fields.of(path, item)


def raw_items(fields: Fields, name: str, maximum: int) -> list[tuple[str, object]]:
    """Return the items of a list with at most `maximum` items, each with its path."""
    value = fields.get(name)
    if isinstance(value, list | tuple) and len(value) > maximum:
        raise FieldError(f"{fields.at(name)} has {len(value)} entries; {maximum} are allowed, so split it")
    return list(fields.items(name))


def texts(fields: Fields, name: str, maximum: int) -> tuple[str, ...]:
    """Return the texts of a list with at most `maximum` items."""
    return tuple(as_text(path, item) for path, item in raw_items(fields, name, maximum))


def hostname(path: str, text: str) -> str:
    """Return a hostname in lower case, possibly with a leading `*.`. An empty text is no hostname."""
    lower = text.lower()
    plain = lower.removeprefix("*.")
    if text and (len(text) > LONGEST_NAME or not is_name(plain) or _is_address(plain)):
        raise FieldError(f"{path} is {shown(text)}; give a DNS name such as shop.example.com or *.example.com")
    return lower


def _is_address(text: str) -> bool:
    return all(part.isdecimal() for part in text.split("."))


def hostnames(fields: Fields, problems: list[str]) -> tuple[str, ...] | None:
    """Return the names in `hostnames`, each once, and note which aren't understood; None where none of them is."""
    names, entries = dict[str, None](), list[tuple[str, object]]()
    try:
        entries = raw_items(fields, "hostnames", 16)
    except FieldError as error:
        problems.append(str(error))
        return None
    for path, item in entries:
        try:
            name = hostname(path, as_text(path, item))
        except FieldError as error:
            problems.append(str(error))
            name = odd_host(item)
        names |= {name: None} if name else {}
    return tuple(names) if names or not entries else None


def odd_host(item: object) -> str:
    """Return an invalid DNS name that requests may have all the same; empty for other values."""
    try:
        return http_checks.host(item.lower()) if isinstance(item, str) else ""
    except ValueError:
        return ""


def duration(fields: Fields, name: str) -> int:
    """Return a duration in milliseconds, 0 if absent."""
    text = fields.text(name)
    if text and not _DURATION.fullmatch(text):
        raise FieldError(f"{fields.at(name)} is {shown(text)}; give a duration such as 500ms or 1m30s")
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text))


def name_of(fields: Fields, name: str = "name") -> str:
    """Return an object's name: a DNS subdomain, never a path."""
    text = fields.text(name)
    if not is_name(text):
        raise FieldError(f"{fields.at(name)} is {shown(text)}; use lower-case letters, digits, hyphens and dots")
    return text


def namespace_of(fields: Fields, default: str) -> str:
    return fields.label("namespace", default)


def group_of(fields: Fields, default: str) -> str:
    """Return an API group; absent and empty are two things here."""
    text = default if fields.get("group") is None else fields.text("group")
    if text and not is_name(text):
        raise FieldError(f'{fields.at("group")} is {shown(text)}; give an API group, or "" for the core')
    return text


def kind_of(fields: Fields, default: str) -> str:
    text = fields.text("kind") or default
    if not _KIND.fullmatch(text):
        raise FieldError(f"{fields.at('kind')} is {shown(text)}; give a kind such as {default or 'Service'}")
    return text


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
_LABEL_NAME = pattern(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


class _Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    NONE = ""


_WITH_VALUES = frozenset({_Operator.IN, _Operator.NOT_IN})
CERTIFICATE_OPTION, LOCAL = f"{KEY_PREFIX}certificate", "local"
"""The option of a listener without a Secret, so that an API accepts it: this user's own authority certifies it."""


def parse_meta(data: Mapping[object, object], *, namespaced: bool) -> Meta | None:
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


_VERSION = f"{KEY_PREFIX}v1"
SECRET_REFERENCE: Mapping[object, object] = {"apiVersion": _VERSION, "kind": "TlsSecretReference"}
"""Stand-in of a Secret among a source's objects; the reader of Secrets makes it."""
BUNDLE_REFERENCE: Mapping[object, object] = {"apiVersion": _VERSION, "kind": "AuthorityBundle"}
"""Stand-in of a ConfigMap with authorities; the reader of ConfigMaps makes it."""
Referred: TypeAlias = BackendService | Namespace | TlsSecret | AuthorityBundle


def parse_referred(data: Mapping[object, object]) -> Referred | None:
    """Read a Service, a Namespace, or the representation of a Secret or ConfigMap; None for anything else."""
    if is_bundle(data):
        return _bundle(data)
    if is_reference(data):
        return _secret(data)
    kind = data.get("kind") if data.get("apiVersion") == "v1" else None
    if kind == "Service":
        meta = _meta(data)
        return parse_backend_service(meta, data) if meta else None
    meta = _meta(data, namespaced=False) if kind == "Namespace" and not fault_of(data) else None
    return Namespace(meta.key.name, meta.labels) if meta else None


def _meta(data: Mapping[object, object], *, namespaced: bool = True) -> Meta | None:
    """Return metadata that is understood as a whole."""
    meta = parse_meta(data, namespaced=namespaced)
    return meta if meta and not meta.problem else None


def is_reference(data: Mapping[object, object]) -> bool:
    """Return whether an object represents a Secret or a ConfigMap."""
    return is_bundle(data) or all(data.get(key) == value for key, value in SECRET_REFERENCE.items())


def is_bundle(data: Mapping[object, object]) -> bool:
    """Return whether an object represents a ConfigMap with authorities."""
    return all(data.get(key) == value for key, value in BUNDLE_REFERENCE.items())


def _bundle(data: Mapping[object, object]) -> AuthorityBundle | None:
    meta = _meta(data)
    if meta and (fault := fault_of(data)):
        return AuthorityBundle(meta.key, problem=fault)
    try:
        spec = spec_of(data)
        stated = spec.text("authorities"), spec.text("problem")
    except FieldError:
        return None
    return AuthorityBundle(meta.key, *stated) if meta else None


def _secret(data: Mapping[object, object]) -> TlsSecret | None:
    meta = _meta(data)
    if meta and (fault := fault_of(data)):
        return TlsSecret(meta.key, problem=fault)
    try:
        spec = spec_of(data)
        stated = Digest(spec.text("digest")), spec.text("file"), spec.text("problem"), bool(spec.flag("tcpOnly"))
    except FieldError:
        return None
    return TlsSecret(meta.key, *stated) if meta else None


def parse_backend_service(meta: Meta, data: Mapping[object, object]) -> BackendService | None:
    """Read a Service of any type as the backend of a route; None where its ports make no sense."""
    try:
        spec = spec_of(data)
        entries = list(items(spec, "ports", 1000))
        ports = tuple(
            ServicePort(
                entry.integer("port", 1, LARGEST_PORT),
                entry.choice("protocol", Protocol.TCP),
                entry.text("name"),
                entry.integer("nodePort", 0, LARGEST_PORT, 0),
                _target(entry),
            )
            for entry in entries
        )
        protocols = tuple(entry.text("appProtocol") for entry in entries)
        uses_name = spec.text("type") == "ExternalName"
    except FieldError:
        return None
    return BackendService(meta.key, ports, protocols, uses_name)


def _target(fields: Fields) -> int | str | None:
    value = fields.get("targetPort")
    return value if isinstance(value, int | str) and value and not isinstance(value, bool) else None


_MAX_TARGETS, _MAX_POLICY_AUTHORITIES, _MAX_NAMES = 16, 8, 5


class _NameType(StrEnum):
    HOSTNAME = "Hostname"
    URI = "URI"


def parse_policy(meta: Meta, data: Mapping[object, object]) -> BackendTlsPolicy:
    targets: tuple[PolicyTarget, ...] = ()
    problems: list[str] = []
    try:
        spec = spec_of(data)
        targets = tuple(_targets(spec, problems))
        validation, options = spec.inner("validation"), spec.inner("options")
        names = [_name(item) for item in items(validation, "subjectAltNames", _MAX_NAMES)]
        return BackendTlsPolicy(
            meta,
            targets,
            hostname(validation.at("hostname"), validation.text("hostname")),
            tuple(
                _authority(item, meta.key.namespace)
                for item in items(validation, "caCertificateRefs", _MAX_POLICY_AUTHORITIES)
            ),
            validation.text("wellKnownCACertificates"),
            tuple(name for kind, name in names if kind is _NameType.HOSTNAME),
            tuple(name for kind, name in names if kind is _NameType.URI),
            tuple(options.at(str(name)) for name in options.data),
            "; ".join(problems),
        )
    except FieldError as error:
        return BackendTlsPolicy(meta, targets, problem="; ".join([*problems, str(error)]))


def _targets(spec: Fields, problems: list[str]) -> Iterator[PolicyTarget]:
    """Return the targets that are understood, as none of them may get clear text for the sake of another one."""
    try:
        entries = raw_items(spec, "targetRefs", _MAX_TARGETS)
    except FieldError as error:
        problems.append(str(error))
        return
    for path, item in entries:
        try:
            yield _policy_target(Fields.of(path, item), problems)
        except FieldError as error:
            problems.append(str(error))


def _policy_target(fields: Fields, problems: list[str]) -> PolicyTarget:
    target = PolicyTarget(group_of(fields, ""), kind_of(fields, ""), name_of(fields))
    try:
        return target._replace(section=fields.text("sectionName"))
    except FieldError as error:
        problems.append(str(error))
        return target


def _authority(fields: Fields, namespace: str) -> Reference:
    return Reference(group_of(fields, ""), kind_of(fields, "ConfigMap"), Named(namespace, name_of(fields)))


def _name(fields: Fields) -> tuple[_NameType, str]:
    """Return a name that a certificate may have; URIs are compared as they are."""
    kind = fields.choice("type", _NameType.HOSTNAME)
    field = "hostname" if kind is _NameType.HOSTNAME else "uri"
    text = fields.text(field)
    if not text:
        raise FieldError(f"{fields.at(field)} is missing; give the {kind} that a certificate must have")
    return kind, hostname(fields.at(field), text) if kind is _NameType.HOSTNAME else text
