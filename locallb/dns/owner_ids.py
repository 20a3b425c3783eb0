"""The owner id in a stack's DNS markers: made at its first deployment and kept with its project.

A stack that was deployed before such ids existed keeps the one of its project, name and directory, although another
host may have the same: the owner of a marker with it is then ambiguous. Not here: markers (`updates`).
"""

from __future__ import annotations

import secrets

from locallb.dns.updates import early_owner_id
from locallb.model.errors import ClientError
from locallb.model.identities import Home, OwnerId
from locallb.patterns import pattern
from locallb.storage import files, paths

NAME = "dns-owner"
"""Name of the file next to the stack's last readings."""
_ID = pattern(r"local-lb-[0-9a-f]{12}")


class OwnerIdError(ClientError):
    """The file doesn't say it: one sentence."""


def establish(home: Home) -> None:
    """Create a stack's own id, where it has none yet. Raises FilesError, PlaceError."""
    path = paths.stack_directory(home) / NAME
    paths.private_directory(path.parent)
    with files.locked(path.parent):
        if files.read(path) is None:
            files.write(path, f"local-lb-{secrets.token_hex(6)}\n", durable=True)


def owner_id(home: Home) -> OwnerId:
    """Return the id of a stack. Raises ClientError."""
    path = paths.stack_directory(home) / NAME
    try:
        text = files.read(path)
    except files.FilesError as error:
        raise OwnerIdError(f"{error}: it says which owner the marks of names have; make it readable") from None
    if text is None:
        return early_owner_id(home)
    if not _ID.fullmatch(text.strip()):
        example = f"local-lb-{12 * '0'}"
        raise OwnerIdError(f"{path} doesn't say which owner the marks of names have; write one such as {example} there")
    return OwnerId(text.strip())
