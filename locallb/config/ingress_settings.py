"""The value of the key `ingress`. Not here: how it is parsed (`parsing.ingress`)."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class AddressPer(StrEnum):
    """Grouping of Ingresses by shared address."""

    CLASS = "class"
    NAMESPACE = "namespace"
    """Ingresses of a class in one namespace."""
    INGRESS = "ingress"
    """None: each has its own."""


class Dialect(StrEnum):
    """Other Ingress controllers with annotations that can be read."""

    NGINX = "nginx"
    """ingress-nginx: `nginx.ingress.kubernetes.io/`."""
    TRAEFIK = "traefik"
    """`traefik.ingress.kubernetes.io/`."""


class IngressSettings(Struct, frozen=True):
    """The served Ingresses, and their addresses."""

    class_name: str | None = None
    """The only served class, whether or not it exists as an object; None for all of our controller."""
    http: int = 80
    https: int = 443
    address: AddressPer = AddressPer.CLASS
    is_off: bool = False
    """None is served."""
    annotations: frozenset[Dialect] = frozenset()
    """Controllers with annotations that are understood."""
