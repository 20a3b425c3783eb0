"""The claims that a state knows, by address and owner, to be compared with the ledger's.

Services of other stacks have the same names. Not here: what becomes of claims that no state knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from locallb.ledger.ledger import Ledger, LedgerError
from locallb.model.errors import ClientError
from locallb.model.fields import object_of
from locallb.model.identities import Home, ObjectKey
from locallb.model.naming import owner_from
from locallb.model.snapshot import Claim
from locallb.model.state_resource import CLAIMS, Resource


class ClaimKey(NamedTuple):
    """A claim, as a state and the ledger both name it. The Service's uid is left out: an update may just change it."""

    name: str
    home: Home
    service: ObjectKey


class StateClaimError(ClientError):
    """A state lacks the owner of one of its claims: one sentence."""


class NamedResource(Resource, Protocol):
    """A resource of a state, with its id."""

    @property
    def id(self) -> object:
        """The id that its provider gave it."""


def every_claim(ledger: Ledger) -> tuple[Claim, ...]:
    """Return the claims of a ledger, to find unused ones. Raises LedgerError if one can't be read."""
    claims = ledger.claims()
    for claim in claims:
        if claim.unread:
            raise LedgerError(claim.problem)
    return claims


def claim_key(claim: Claim) -> ClaimKey:
    """Name a claim of the ledger."""
    return ClaimKey(claim.name, claim.owner.home, claim.owner.service)


def claim_keys_in(resources: Iterable[NamedResource]) -> frozenset[ClaimKey]:
    """Name the claims of a state. Raises StateClaimError."""
    return frozenset(_held(resource) for resource in resources if resource.type in CLAIMS)


def _held(resource: NamedResource) -> ClaimKey:
    try:
        owner = owner_from(object_of(resource.inputs.get("owner")))
    except (KeyError, ValueError, TypeError) as error:
        raise StateClaimError(
            f"the state doesn't say whose {resource.id} is: `locallb state restore` goes back to the last good state"
        ) from error
    return ClaimKey(str(resource.id), owner.home, owner.service)
