"""A guard against renamed projects: deployments under the old name would be served a second time.

A backend keeps states by the project's name, so a stack that was deployed before `name` in Pulumi.yaml was changed has
no state under the new name. Not here: a directory that was renamed or copied (`stack_home`), which keeps its states.
"""

from __future__ import annotations

from pathlib import Path

from locallb.model.identities import Home
from locallb.model.system_errors import UNTOLD, refusal
from locallb.sources import SourceError
from locallb.sources.state.stack_home import deployed_from
from locallb.storage import paths


def refuse_renamed(home: Home, state: Path | None) -> None:
    """Raise SourceError if this project's directory has the stack deployed under another name of the project."""
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
        sentence = f"whether stack {home.stack} is deployed under another name of the project can't be told"
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
