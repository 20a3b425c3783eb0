"""The value of the key `ingress`. Not here: how it is parsed (`parsing.ingress`)."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class AddressPer(StrEnum):
    """Which Ingresses have an address together."""

    CLASS = "class"
    NAMESPACE = "namespace"
    """Those of a class in a namespace."""
    INGRESS = "ingress"
    """None: each has its own."""


class Dialect(StrEnum):
    """Other Ingress controllers whose annotations can be read."""

    NGINX = "nginx"
    """ingress-nginx: `nginx.ingress.kubernetes.io/`."""
    TRAEFIK = "traefik"
    """`traefik.ingress.kubernetes.io/`."""


class IngressSettings(Struct, frozen=True):
    """Which Ingresses are served, and where."""

    class_name: str | None = None
    """The only class that is served, whether or not it is there as an object; None for all of our controller."""
    http: int = 80
    https: int = 443
    address: AddressPer = AddressPer.CLASS
    is_off: bool = False
    """None is served."""
    annotations: frozenset[Dialect] = frozenset()
    """Whose annotations are understood."""
