"""The home of a stack: the state home in which its proxies live, the user of their processes, the project's directory.

Written next to the last readings at the first deployment; for deployments of earlier versions the state has it. A stack
is used from there only: elsewhere its proxies would be missed, and started once more. So a copy of an existing project
is refused, and one deployed under another name (`refuse_renamed`). Not here: removing proxies from a state home
(`provider.reachable`).
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from locallb import safe_files
from locallb.dns.owner_ids import establish
from locallb.model.desired import ADDRESS_CLAIMS, CONFIG
from locallb.model.errors import UNTOLD, refusal
from locallb.model.identities import Home
from locallb.sources import SourceError
from locallb.storage import files, paths
from locallb.storage.proxy_directories import Proxies


def refuse_renamed(home: Home, state: Path | None) -> None:
    """Raise SourceError if this project's directory has the stack deployed under another name of the project.

    A backend keeps states by the project's name, so a stack that was deployed before `name` in Pulumi.yaml was changed
    has no state under the new name: its deployments would be served a second time. A directory that was renamed or
    copied keeps its states.
    """
    for other in earlier_names(home, state):
        project_file, retry = Path(home.root) / "Pulumi.yaml", "too" if has_deployed(state) else "a second time"
        raise SourceError(
            f"stack {home.stack} of {home.root} is deployed as project {other!r}; under its name now, {home.project!r},"
            f" it would be served {retry}. Write `name: {other}` into {project_file} again: all of it goes on as it is."
            f" Where {home.project!r} is the name to keep, run `locallb destroy` with the old name there first"
        )


def earlier_names(home: Home, state: Path | None) -> list[str]:
    """List the other projects of the backend that have the stack deployed from this directory."""
    if state is None:
        return []
    try:
        others = (folder / state.name for folder in paths.entries(state.parent.parent) if folder != state.parent)
    except OSError as error:
        if error.errno not in UNTOLD:  # such as a directory of several users that may be entered and not listed
            return []
        sentence = f"can't determine whether stack {home.stack} is deployed under another name of the project"
        raise SourceError(f"{sentence}: {state.parent.parent}: {refusal(error)}") from None
    return sorted(path.parent.name for path in others if _is_of(path, Path(home.root)))


def has_deployed(state: Path | None) -> bool:
    """Return whether a state has anything of a load balancer."""
    return state is not None and bool(deployed_from(state))


def _is_of(state: Path, root: Path) -> bool:
    """Return whether a state is of a deployment from `root`.

    Or from an earlier path of it, if the backend is inside the project: elsewhere a missing path may be any project's.
    """
    goes_along = root in state.parents
    roots = {deployed.root for deployed in deployed_from(state)}
    return str(root) in roots or (
        goes_along and not all(paths.is_another_directory(existing, str(root)) for existing in roots)
    )


FORMAT = 1
"""Format of the stack: a version that writes state or proxies' files in an incompatible form increases it."""
NAME = "state-home"
"""Of the file; sources' readings end with `.json`."""


class Belonging(Struct, frozen=True):
    """Where a stack belongs. Empty, or -1 for the user, is what isn't known."""

    state_home: str
    uid: int
    root: str

    @property
    def user(self) -> str:
        """The user's name, or number."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return f"user {self.uid}"


def here(home: Home) -> Belonging:
    """Return where a stack deployed by this process would belong. Raises PlaceError."""
    return Belonging(str(paths.state_home()), os.geteuid(), home.root)


def belonging(home: Home, state: Path | None) -> Belonging | None:
    """Read where the stack belongs; None if it was never deployed, or that can't be found out. Raises SourceError."""
    path = _path(home)
    try:
        text = files.read(path)
        if text is not None:
            document = json.loads(text)
            _refuse_newer(home, document["format"])
            return _parsed(document)
    except files.FilesError as error:
        if isinstance(error.__cause__, PermissionError):
            raise SourceError(
                f"{error}: it says where stack {home.stack} belongs; run this as the user whose stack that is"
            ) from None
        if error.is_of_host:
            raise SourceError(f"can't determine where stack {home.stack} belongs: {error}") from None
        raise _unclear(home, error) from None
    except (ValueError, KeyError, TypeError) as error:
        raise _unclear(home, error) from None
    return _reported_by_state(state) if state else None


def _unclear(home: Home, error: Exception) -> SourceError:
    return SourceError(
        f"{_path(home)} doesn't say where stack {home.stack} belongs ({error}): remove it if the stack's proxies live"
        f" in {paths.state_home()}"
    )


def require_here(home: Home, state: Path | None) -> None:
    """Raise SourceError if the stack belongs to another project's directory, state home or user."""
    existing = belonging(home, state)
    if existing is None:
        return
    refuse_copy(home, existing)
    current = here(home)
    if not is_elsewhere(existing, current):
        return
    raise SourceError(
        f"stack {home.stack} belongs to {existing.user}, and its proxies live under {existing.state_home}; for "
        f"{current.user}"
        f" they would live under {current.state_home}. Run this as {existing.user} with"
        f" XDG_STATE_HOME={Path(existing.state_home).parent}, or move the stack:"
        " `locallb state adopt`"
    )


def refuse_copy(home: Home, existing: Belonging) -> None:
    """Raise SourceError if this project is a copy of an existing one that owns the stack."""
    if existing.root and paths.is_another_directory(existing.root, home.root):
        raise SourceError(
            f"the project at {home.root} is a copy of {existing.root}, which still exists and has stack "
            f"{home.stack}: run"
            f" this there. For a stack of its own here give it another name, or forget the copied state:"
            f" `rm -r {home.root}/.state/.pulumi {home.root}/.state/locallb`"
        )


def write(home: Home, state: Path | None) -> None:
    """Check that the stack belongs here, and record it if that is new. Raises SourceError."""
    require_here(home, state)
    if belonging(home, state) is None:
        _establish(home)
    settle(home)


def _establish(home: Home) -> None:
    """Give a stack that was never deployed an id for the marks of its names. Raises SourceError."""
    try:
        establish(home)
    except (files.FilesError, paths.PlaceError) as error:
        raise SourceError(f"stack {home.stack} can't get an id of its own: {error}") from None


def settle(home: Home) -> None:
    """Record that the stack belongs here; remove leftovers of killed runs and of proxies. Raises SourceError."""
    path, text = _path(home), json.dumps({"format": FORMAT, **asdict(here(home))}, indent=1) + "\n"
    try:
        if files.read(path) != text:
            paths.private_directory(path.parent)
            files.write(path, text)
        safe_files.remove_abandoned(path.parent)
        Proxies.ours().sweep()
    except (files.FilesError, paths.PlaceError) as error:
        raise SourceError(f"it can't be written down where stack {home.stack} belongs: {error}") from None


def _path(home: Home) -> Path:
    return paths.stack_directory(home) / NAME


def _refuse_newer(home: Home, written: object) -> None:
    """Raise SourceError if a newer version serves the stack: this version would misread its files."""
    if isinstance(written, int) and written > FORMAT:
        raise SourceError(
            f"stack {home.stack} is served by a newer version of local-lb: {_path(home)} has the format {written}, and"
            f" this version knows {FORMAT}; install that version again, or a later one"
        )


def _parsed(document: Mapping[str, object]) -> Belonging:
    """Read what was written. Raises ValueError, KeyError or TypeError."""
    if document["format"] != FORMAT:
        raise ValueError(f"its format is {document['format']!r}, and this version knows {FORMAT}")
    state_home, uid, root = document["state_home"], document["uid"], document["root"]
    if not isinstance(state_home, str) or not isinstance(uid, int) or not isinstance(root, str):
        raise TypeError("it isn't as local-lb writes it")
    return Belonging(state_home, uid, root)


def _reported_by_state(state: Path) -> Belonging | None:
    """Return the home of a stack by its state, if an earlier version wrote that."""
    ours = str(paths.state_home())
    homes = sorted(deployed_from(state), key=lambda home: (not home.state_home, home.state_home != ours))
    return homes[0] if homes else None


def deployed_from(state: Path) -> list[Belonging]:
    """List the homes of load balancers in a state; an unusable state has none.

    Raises SourceError if the host can't read it.
    """
    try:
        document = json.loads(files.read(state, safe_files.STATE) or "{}")
        return list(_reported_by_resources(document["checkpoint"]["latest"]["resources"]))
    except files.FilesError as error:
        if error.is_of_host:
            raise SourceError(f"can't determine where its load balancers belong: {error}") from None
        return []
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _reported_by_resources(resources: list[Mapping[str, object]]) -> Iterator[Belonging]:
    for resource in resources:
        inputs, outputs = resource.get("inputs"), resource.get("outputs")
        if resource["type"] in {*ADDRESS_CLAIMS, CONFIG} and isinstance(inputs, dict) and isinstance(outputs, dict):
            root = str(inputs["owner"]["root"])
            directory = outputs.get("directory")
            if not isinstance(directory, str) or not directory:
                yield Belonging("", -1, root)
            else:
                yield Belonging(str(Path(directory).parent.parent), _uid(directory), root)


def _uid(directory: str) -> int:
    """Return the owner of a proxy's directory; -1 if it can't be read."""
    try:
        return Path(directory).stat().st_uid
    except OSError:
        return -1


def is_elsewhere(existing: Belonging, current: Belonging) -> bool:
    """Return whether a stack belongs to another state home or user; False if that is unknown."""
    state_home = existing.state_home
    same = (
        not state_home
        or state_home == current.state_home
        or not paths.is_another_directory(state_home, current.state_home)
    )
    return not same or existing.uid not in {-1, current.uid}
