"""Validation of bearer tokens in kubeconfigs, inline or in replaced files: an invalid one is refused before use.

The client would print a token that it can't send, or half of it. Not here: tokens of plugins.
"""

from __future__ import annotations

import re
from pathlib import Path

from locallb.guarded import reader
from locallb.kubernetes.access.errors import KubeconfigError
from locallb.kubernetes.access.kubeconfig_file import LARGEST, Section, unreadable
from locallb.model.snapshot import Access

_TOKEN = re.compile(rb"[ -~]+")


def require_token(user: Section, access: Access) -> None:
    """Refuse a user's token that can't be sent, without telling it. Raises KubeError."""
    why = ""
    if user.get("tokenFile"):
        path = Path(access.kubeconfig).parent / str(user["tokenFile"])
        why = "" if _TOKEN.fullmatch(_content(path, access)) else f"{path} has no token in one line; write one there"
    elif user.get("token") and not _TOKEN.fullmatch(str(user["token"]).encode("utf-8", "replace")):
        why = "its user's token isn't one line of plain characters; copy it again"
    if why:
        raise KubeconfigError(f"the context {access.context} of {access.kubeconfig} can't be used: {why}")


def _content(path: Path, access: Access) -> bytes:
    """Read a token's file. Raises KubeError."""
    try:
        return reader.read(path, LARGEST).strip()
    except OSError as error:
        raise unreadable(str(path), error, access.kubeconfig) from None
