"""The content of a kubeconfig file, and its proof about a context: present, removed, or neither.

Other programs rewrite these files in place, so any beginning of one may be read. A file that can't be parsed, is empty
or may be half-written proves nothing, and nothing is given up for it.

Not here: the meaning of a context (`kubeconfig`), and tokens of plugins (`exec_plugin`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, field

from locallb.kubernetes.access import in_cluster
from locallb.kubernetes.access.servers import KubeconfigError, KubeError, NoContextError
from locallb.kubernetes.parsing.documents import DocumentError, ReadDocument, read_documents
from locallb.model.errors import refusal
from locallb.model.fields import JsonObject
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access
from locallb.model.texts import clipped, few
from locallb.safe_files import reader

Section: TypeAlias = JsonObject
LARGEST = 4 * 2**20
"""Bytes of a kubeconfig, and of each file that it names."""
EMPTIED = 10.0
"""Seconds after which a file without any list counts as emptied, not as one that is being written."""
UNWRITTEN: dict[str, bytes] = {}
"""Contents, by path, of files that a preview may not write; reads of such a path return these."""


class Content(Struct, frozen=True, dict=True):
    """Contents of a kubeconfig."""

    path: Path
    document: ReadDocument
    data: bytes
    changed: float
    """When it was written to last (Unix)."""
    lists: Mapping[str, Mapping[str, Section]] = field(default_factory=dict)
    """The sections of each list, by name."""

    @property
    def values(self) -> Section:
        return self.document.value if isinstance(self.document.value, dict) else {}

    @cached_property
    def proves_absence(self) -> bool:
        """Return whether a context that isn't in it is gone: no beginning of a longer file looks like this.

        Either its list of contexts is whole, because a field follows it or everything stands in braces, or it has none
        of the lists any more, as after `kind delete cluster`, and wasn't written to for `EMPTIED` seconds.
        """
        keys = list(self.values)
        if any(repeated.key == "contexts" for repeated in self.document.repeated) or b"<<" in self.data:
            return False
        if "contexts" in keys:
            return keys[-1] != "contexts" or self.data.lstrip().startswith(b"{")
        bare = set(keys) <= {"apiVersion", "kind", "preferences"} and self.values.get("kind") == "Config"
        return bare and time.time() - self.changed > EMPTIED

    def absent(self, context: ContextName) -> KubeError:
        """Explain that a kubeconfig has no such context."""
        names = few([clipped(str(name)) for name in self.lists["contexts"]])
        contents = f"it has {names}" if names else "it has none"
        if self.proves_absence:
            return NoContextError(f"{self.path} has no context {clipped(context)}; {contents}")
        return KubeconfigError(
            f"{self.path} has no context {clipped(context)} now, but it may be half-written, because nothing follows"
            f" its list of contexts; {contents}",
        )


def unwritten(path: str) -> bytes | None:
    """Return the contents of a kubeconfig that isn't written; None if the file itself counts."""
    return UNWRITTEN.get(path) or in_cluster.unwritten(path)


def read_content(path: Path) -> Content:
    """Read the file. An empty or unparsable one has no contents. Raises KubeconfigError."""
    try:
        given = unwritten(str(path))
        data = given or reader.read(path, LARGEST)
        changed = time.time() if given is not None else path.stat().st_ctime
        documents = read_documents(data, is_json=False)
    except OSError as error:
        raise unreadable(str(path), error) from None
    except DocumentError as error:
        sentence = f"{path} isn't a kubeconfig" + (f": line {error.line}: {error.what}" if error.line else "")
        raise KubeconfigError(sentence) from None
    if not any(document.value for document in documents):
        raise KubeconfigError(f"{path} is empty; it may be half-written")
    try:
        (document,) = documents
        return Content(path, document, data, changed, _lists(document.value))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KubeconfigError(f"{path} isn't a kubeconfig") from None


def _lists(values: Any) -> Mapping[str, Mapping[str, Section]]:  # noqa: ANN401 - of somebody else
    """Return the sections of each list by name; a list that is null, as `kubectl` leaves it, is empty."""
    lists = {kind: _named(values.get(kind) or (), kind.removesuffix("s")) for kind in _LISTS}
    for sections in lists.values():
        for section in sections.values():
            section.get("name")
    return lists


_LISTS = ("clusters", "contexts", "users")


def _named(entries: Iterable[Any], kind: str) -> Mapping[str, Section]:
    return {entry["name"]: entry.get(kind) or {} for entry in entries}


def unreadable(path: str, error: OSError, kubeconfig: str = "") -> KubeError:
    """Return why the kubeconfig, or a file that it names, can't be read."""
    what = (
        f"{path}, which the kubeconfig {kubeconfig} names,"
        if kubeconfig not in {"", path}
        else f"the kubeconfig {path}"
    )
    return KubeconfigError(f"{what} can't be read: {refusal(error)}")


_TOKEN = re.compile(rb"[ -~]+")


def require_token(user: Section, access: Access) -> None:
    """Refuse a user's token that can't be sent, without printing it. Raises KubeError.

    The bearer token is inline or in a file that may be replaced. An HTTP client would print a token that it can't send,
    or half of it.
    """
    if user.get("tokenFile"):
        read_token(Path(access.kubeconfig).parent / str(user["tokenFile"]), access)
    elif user.get("token") and not _TOKEN.fullmatch(str(user["token"]).encode("utf-8", "replace")):
        raise _without_token("its user's token isn't one line of plain characters; copy it again", access)


def read_token(path: Path, access: Access) -> str:
    """Read the token in a file. Raises KubeError."""
    try:
        token = reader.read(path, LARGEST).strip()
    except OSError as error:
        raise unreadable(str(path), error, access.kubeconfig) from None
    if not _TOKEN.fullmatch(token):
        raise _without_token(f"{path} has no token in one line; write one there", access)
    return token.decode("ascii")


def _without_token(why: str, access: Access) -> KubeError:
    return KubeconfigError(f"the context {access.context} of {access.kubeconfig} can't be used: {why}")
