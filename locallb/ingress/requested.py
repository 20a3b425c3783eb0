"""The addresses requested by Ingresses that share one: the oldest decides, and the others get a notice.

Not here: permissions to use an address (`planning.addresses`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from locallb.model.fields import FieldError, as_address
from locallb.model.gateway.ingresses import Ingress
from locallb.model.identities import Family, IPAddress, ObjectKey
from locallb.model.objects import ADDRESSES_ANNOTATION


class Requested(NamedTuple):
    """At most one address a family, and what isn't heard."""

    addresses: tuple[IPAddress, ...] = ()
    failures: tuple[tuple[Ingress, str], ...] = ()

    @property
    def families(self) -> tuple[Family, ...]:
        """The families of the addresses; of none IPv4."""
        return tuple(map(Family.of, self.addresses)) or (Family.IPV4,)


def requested(key: ObjectKey, ingresses: Sequence[Ingress]) -> Requested:
    """Return the requests of Ingresses, the oldest first; `key` is their owner. All of a class request nothing."""
    asking = [ingress for ingress in ingresses if _requires(ingress)]
    if asking and not key.namespace:
        why = f"{ADDRESSES_ANNOTATION} isn't heard where all Ingresses of a class have one address; set"
        why += " local-lb:ingress to have `address: ingress` or `address: namespace`"
        return Requested(failures=tuple((ingress, why) for ingress in asking))
    owner: Ingress | None = None
    oldest = next((ingress for ingress in ingresses if not ingress.problem), None)
    chosen: tuple[IPAddress, ...] = ()
    failures: list[tuple[Ingress, str]] = []
    for ingress in asking:
        try:
            demand = _requested(ingress.meta.annotations[ADDRESSES_ANNOTATION])
        except FieldError as error:
            failures.append((ingress, str(error)))
            continue
        if ingress is oldest:
            owner, chosen = ingress, demand
        elif owner is None and oldest:
            why = f"{ADDRESSES_ANNOTATION} asks for {' and '.join(map(str, demand))}, which only the oldest Ingress of"
            failures.append((ingress, f"{why} the address may: {oldest.meta.key}; annotate that one"))
        elif owner and demand != chosen:
            theirs = " and ".join(map(str, chosen))
            why = f"{ADDRESSES_ANNOTATION} asks for {' and '.join(map(str, demand))}, and the older Ingress"
            failures.append(
                (ingress, f"{why} {owner.meta.key} for {theirs}, which they have together; ask for the same")
            )
    return Requested(chosen, tuple(failures))


def _requires(ingress: Ingress) -> bool:
    return not ingress.problem and bool(ingress.meta.annotations.get(ADDRESSES_ANNOTATION, "").strip())


def _requested(text: str) -> tuple[IPAddress, ...]:
    """Read an annotation, IPv4 first. Raises FieldError."""
    demand: dict[Family, IPAddress] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        address = as_address(ADDRESSES_ANNOTATION, part)
        first = demand.setdefault(Family.of(address), address)
        if first != address:
            why = f"asks for {first} and {address}; ask for one {Family.of(address)} address"
            raise FieldError(f"{ADDRESSES_ANNOTATION} {why}")
    return tuple(demand[family] for family in Family if family in demand)
