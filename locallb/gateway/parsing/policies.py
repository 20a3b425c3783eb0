"""Parses BackendTLSPolicies, and the objects that Gateway API objects refer to, as far as used.

Never raises: a malformed policy keeps its problem. Referenced objects are Services of any type, Namespaces, and
stand-ins of Secrets and ConfigMaps: only a digest of a Secret leaves the code that reads it, and only certificates of a
ConfigMap.

Not here: the effect of a policy (`gateway.backend_tls`), and the readers of Secrets and ConfigMaps
(`sources.kubernetes.named_objects`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TypeAlias

from locallb.gateway.parsing.fields import LARGEST_PORT, group_of, hostname, items, kind_of, name_of, raw_items
from locallb.gateway.parsing.gateways import parse_meta, spec_of
from locallb.model.fields import FieldError, Fields
from locallb.model.gateway_objects import BackendTlsPolicy, Meta, Named, PolicyTarget, Reference
from locallb.model.gateway_of_cluster import AuthorityBundle, BackendService, Namespace, TlsSecret
from locallb.model.identities import KEY_PREFIX, Digest, Protocol
from locallb.model.objects import ServicePort
from locallb.model.texts import fault_of

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


_MAX_TARGETS, _MAX_AUTHORITIES, _MAX_NAMES = 16, 8, 5


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
                for item in items(validation, "caCertificateRefs", _MAX_AUTHORITIES)
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
