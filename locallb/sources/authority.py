"""This user's own certificate authority as an input of the plan: its name, its domains, and the day.

If it can't be used, the state counts: existing certificates serve on, and new ones fail separately. Not here: its
key, and its certificates (`certificates`).
"""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from locallb.certificates.local import DOMAINS
from locallb.config.settings import Settings
from locallb.model.errors import ClientError
from locallb.model.identities import Fingerprint
from locallb.model.snapshot import LocalAuthority

_FIRST = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class AuthorityRead(NamedTuple):
    """The authority, and why it can't be used."""

    authority: LocalAuthority | None = None
    complaints: tuple[str, ...] = ()


NO_AUTHORITY = AuthorityRead()


def read_authority(settings: Settings, held: Fingerprint, *, keep: bool) -> AuthorityRead:
    """Read the authority if the stack wants one; `keep`: create it if it doesn't exist.

    `held` is the fingerprint of the authority in the state.
    """
    if not settings.local_certificates:
        return NO_AUTHORITY
    from locallb.certificates import store  # noqa: PLC0415 - few stacks need what it loads

    now = store.now()
    day = (now - _FIRST).days
    try:
        existing = store.ensure(now) if keep else store.find()
    except ClientError as error:
        return AuthorityRead(LocalAuthority(held, (), day), (str(error),))
    if existing is None:
        return AuthorityRead(LocalAuthority(Fingerprint(""), DOMAINS, day))
    why = store.fault(existing, now)
    return AuthorityRead(
        LocalAuthority(existing.observed.fingerprint, existing.observed.domains, day), (why,) if why else ()
    )


def unknown_authority(settings: Settings) -> LocalAuthority | None:
    """Return the authority of the user who runs this, read at the time of the call."""
    return LocalAuthority(Fingerprint(""), DOMAINS) if settings.local_certificates else None
