"""The engine's errors: one sentence each, naming the object, the value and the way out.

The command line prints `str(error)` as it is. Nothing here knows what the resources are about.
"""

from pathlib import Path

from locallb.model.errors import has_remedy, obstacle, refusal, reported, words_of
from locallb.safe_files import UnfitError


class EngineError(Exception):
    """An operation that the engine can't or won't do, in one sentence."""


class ProjectError(EngineError):
    """`Pulumi.yaml` or the stack's configuration can't be used."""


class StateBroken(EngineError):  # noqa: N818 the name says what happened
    """The state file can't be trusted: cut short, edited by hand, of another format."""


class StateUnusable(StateBroken):
    """The stack's state or journal isn't what any engine writes: one wording, one way out."""

    def __init__(self, path: Path, why: str) -> None:
        way_out = "run `locallb state restore` to go back to the last good state"
        super().__init__(f"{path} can't be used: {why}; {way_out}")


def unreadable(path: Path, error: OSError) -> StateBroken:
    """Make the error of a stack's state or journal that the system doesn't let us read."""
    if has_remedy(error):  # the state may be as good as ever
        return StateUnreadable(f"{path} can't be read: {refusal(error)}, then run again")
    return StateUnusable(path, refusal(error))


def parsing_problem(error: Exception) -> str:
    """Return why a text can't be parsed; Python's recursion limit is not mentioned."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


class HostRefused(EngineError):  # noqa: N818 the name says what happened
    """The system refuses what every run needs: descriptors, threads."""

    def __init__(self, error: OSError) -> None:
        super().__init__(reported(error))


class StateUnreadable(StateBroken):
    """The host prevents reading the state, its journal or a backup; their content is then unknown."""


class StateUnwritable(EngineError):  # noqa: N818 the name says what happened
    """The state, its lock or its journal can't be written (read-only or full disk)."""


def unwritable(path: Path, error: OSError) -> StateUnwritable:
    """Make the error of a file of a stack that can't be written."""
    if isinstance(error, UnfitError):
        what = f"{words_of(error)}; move it elsewhere, then run again"
    elif remedy := obstacle(error):
        other = str(error.filename2 or error.filename or path)
        where = "" if other == str(path) else f"{other}: "
        what = f"{where}{words_of(error)}; {remedy}, then run again"
    elif has_remedy(error):
        what = f"{refusal(error)}, then run again"
    else:
        what = f"{words_of(error)}; run again once that is repaired"
    return StateUnwritable(f"{path} can't be written: {what}")


class LockHeld(EngineError):  # noqa: N818 the name says what happened
    """Another update of the same stack is running, or its lock was left on another host."""


class Unsupported(EngineError):  # noqa: N818 the name says what happened
    """A feature of Pulumi that this engine leaves to the official command line."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} isn't supported by the embedded engine; use `pulumi up`")


class FullScopeNeeded(EngineError):  # noqa: N818 the name says what happened
    """A scoped update met a change that concerns everything, such as another provider configuration."""


class Cancelled(EngineError):  # noqa: N818 the name says what happened
    """The update was interrupted: what ran was finished, nothing new was started."""

    def __init__(self) -> None:
        super().__init__("the update was interrupted; run it again to finish")


class StepError(EngineError):
    """One resource's operation failed; the others go on."""


class UpdateUnfinished(EngineError):  # noqa: N818 the name says what happened
    """Another engine runs the program, and an update of this one broke off."""
