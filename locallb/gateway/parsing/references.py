"""References from one object to another, as fields have them. Raises FieldError. Not here: which ones are allowed."""

from __future__ import annotations

from locallb.gateway.parsing.fields import group_of, kind_of, name_of, namespace_of
from locallb.model.fields import Fields
from locallb.model.gateway.objects import Named, Reference
from locallb.model.gateway.rules import BackendRef
from locallb.model.http.routes import MAX_WEIGHT

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
