"""Parses BackendTLSPolicies. Never raises: a malformed one keeps its problem.

Not here: references of a policy (`referred`), and its effect (`backend_tls`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from locallb.gateway.parsing.fields import group_of, hostname, items, kind_of, name_of, raw_items
from locallb.gateway.parsing.gateways import spec_of
from locallb.model.fields import FieldError, Fields
from locallb.model.gateway.objects import Meta, Named, Reference
from locallb.model.gateway.policies import BackendTlsPolicy, PolicyTarget

_MAX_TARGETS, _MAX_AUTHORITIES, _MAX_NAMES = 16, 8, 5


class _NameType(StrEnum):
    HOSTNAME = "Hostname"
    URI = "URI"


def parse_policy(meta: Meta, data: Mapping[object, object]) -> BackendTlsPolicy:
    """Read a BackendTLSPolicy."""
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
            yield _target(Fields.of(path, item), problems)
        except FieldError as error:
            problems.append(str(error))


def _target(fields: Fields, problems: list[str]) -> PolicyTarget:
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
