"""Which claims of the ledger a state knows: by what is claimed and by whom.

Services of other stacks have the same names. Not here: what becomes of claims that no state knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from locallb.model.errors import ClientError
from locallb.model.fields import object_of
from locallb.model.identities import Home, ObjectKey
from locallb.model.naming import owner_from
from locallb.model.snapshot import Claim
from locallb.model.state_resource import CLAIMS, Resource


class Held(NamedTuple):
    """A claim, as a state and the ledger both name it. The Service's uid is left out: an update may just change it."""

    name: str
    home: Home
    service: ObjectKey


class StateClaimError(ClientError):
    """A state doesn't say whose a claim of it is: one sentence."""


class NamedResource(Resource, Protocol):
    """A resource of a state, with its id."""

    @property
    def id(self) -> object:
        """What its provider calls it."""


def held(claim: Claim) -> Held:
    """Name a claim of the ledger."""
    return Held(claim.name, claim.owner.home, claim.owner.service)


def held_in(resources: Iterable[NamedResource]) -> frozenset[Held]:
    """Name the claims of a state. Raises StateClaimError."""
    return frozenset(_held(resource) for resource in resources if resource.type in CLAIMS)


def _held(resource: NamedResource) -> Held:
    try:
        owner = owner_from(object_of(resource.inputs.get("owner")))
    except (KeyError, ValueError, TypeError) as error:
        raise StateClaimError(
            f"the state doesn't say whose {resource.id} is: `locallb state restore` goes back to the last good state"
        ) from error
    return Held(str(resource.id), owner.home, owner.service)
