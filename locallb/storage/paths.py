"""Where local-lb keeps things on this host: the state home, proxies' directories, the ledger of addresses.

Only where, and that the directories exist with the right mode; what lies in them belongs to `proxies` and `ledger`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from locallb.model.errors import REMEDIES, ClientError, refusal
from locallb.model.identities import Home

PRIVATE = 0o700
"""Mode of every directory that we make."""
SHARED_LEDGER = Path("/var/lib/locallb/ledger")
"""Made by `locallb host setup`, so that all users of the host see each other's claims."""
LEDGER_VARIABLE = "LOCALLB_LEDGER"
PROJECT_FILE = "Pulumi.yaml"
CONSENTS = "clusters"
"""The file in a stack's directory that has the clusters which users confirmed."""
REFUSALS = "refused"
"""The file in a stack's directory that has what Envoy refused."""
_PACKAGE = Path(__file__).resolve().parents[1]
DATA, PROJECT = Path(".local/share"), "local-lb"
"""Where a user's own project is below the home directory."""
_NOT_OF_PLACES = {errno.ENOSPC, errno.EDQUOT, errno.EIO}
"""What a directory can't be made for that would be no better in another place of the same disk."""


class PlaceError(ClientError):
    """A directory can't be made or used: one sentence."""


def state_home() -> Path:
    """Return where this user's state is: `$XDG_STATE_HOME/locallb`, or `~/.local/state/locallb`.

    Raises PlaceError where neither is there.
    """
    given = os.environ.get("XDG_STATE_HOME", "")
    return _below(given if given.startswith("/") else str(home() / ".local" / "state"), "locallb")


@lru_cache(maxsize=64)
def _below(*parts: str) -> Path:
    """Return the path of these parts. Those of a place are asked for thousands of times, and to make one takes long."""
    return Path(*parts)


def stack_directory(home: Home) -> Path:
    """Return the directory of a stack's own files next to its state: readings, overrides, ids."""
    return Path(home.root) / ".state" / "locallb" / home.stack


def sibling_of_stack(home: Home, kind: str) -> Path:
    """Return a file of a stack next to its directory, under a name that no stack can have.

    Where an earlier version has its own, that counts: it is called as the directory of a stack `dev.watch` would be.
    """
    directory = stack_directory(home)
    former = directory.with_name(f"{home.stack}.{kind}")
    return former if former.is_file() else directory.with_name(f"{home.stack}~{kind}")


def data_home() -> Path:
    """Return where this user's own project is: `$XDG_DATA_HOME/local-lb`, or `~/.local/share/local-lb`.

    Raises PlaceError where neither is there.
    """
    given = os.environ.get("XDG_DATA_HOME", "")
    base = Path(given) if given.startswith("/") else home() / DATA
    return base / PROJECT


def home() -> Path:
    """Return this user's home directory. Raises PlaceError."""
    try:
        user_home = Path.home()
    except RuntimeError:
        raise PlaceError(
            f"HOME isn't set, and user {os.getuid()} has no entry in /etc/passwd: set XDG_STATE_HOME to an absolute"
            " path where this user may write"
        ) from None
    if not user_home.is_absolute():
        raise PlaceError(f"HOME is {str(user_home)!r}, which is no absolute path: correct it, or set XDG_STATE_HOME")
    return user_home


def proxies_root() -> Path:
    """Return where the directories of proxies are."""
    return _below(str(state_home()), "proxies")


def ledger_directory() -> Path:
    """Return which ledger counts here: `$LOCALLB_LEDGER`, the host's where we may write it, or this user's own.

    Raises PlaceError.
    """
    if given := os.environ.get(LEDGER_VARIABLE):
        if not given.startswith("/"):  # every directory would have a ledger of its own
            raise PlaceError(f"{LEDGER_VARIABLE} is {given!r}: write an absolute path, or leave it unset")
        return _below(given)
    if _is_directory(SHARED_LEDGER) and os.access(SHARED_LEDGER, os.W_OK | os.X_OK):
        return SHARED_LEDGER
    return state_home() / "ledger"


def _is_directory(path: Path) -> bool:
    """Return whether there is one that this user may look at. Raises PlaceError where that can't be told.

    `is_dir` says that there is none then, from Python 3.14 on.
    """
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    except OSError as error:
        raise PlaceError(f"can't determine whether there is {path}: {refusal(error)}") from error


def project_root(directory: Path) -> Path | None:
    """Return the nearest directory, `directory` or above it, that has a Pulumi project's file; None where none has."""
    return next((each for each in (directory, *directory.parents) if (each / PROJECT_FILE).is_file()), None)


def is_another_directory(other: str, own: str) -> bool:
    """Return whether `other` still exists and isn't `own` under another name; a path that can't be read exists."""
    try:
        theirs = Path(other).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    try:
        ours = Path(own).stat()
    except OSError:
        return True
    return (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino)


def ledgers() -> tuple[Path, ...]:
    """List every readable ledger: the effective one, then others that this user may only read."""
    if os.environ.get(LEDGER_VARIABLE):
        return (ledger_directory(),)
    others = [path for path in (SHARED_LEDGER, state_home() / "ledger") if os.access(path, os.R_OK | os.X_OK)]
    return tuple(dict.fromkeys([ledger_directory(), *others]))


def entries(directory: Path, ending: str = "") -> tuple[Path, ...]:
    """List what is in a directory and ends so, sorted; nothing where there is no directory.

    Raises OSError where it can't be read. `glob` finds nothing then, from Python 3.12 on.
    """
    try:
        names = os.listdir(directory)  # noqa: PTH208 - see above
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(directory / name for name in sorted(names) if name.endswith(ending) and name[0] != ".")


@contextmanager
def by_descriptor(directory: Path) -> Iterator[Path]:
    """Lend a short path of a directory: those of sockets end at 107 bytes. Raises OSError."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def shipped(name: str) -> Path:
    """Return where a page, example or unit is, as `docs` or `examples/ci`: in an installed wheel, or the checkout."""
    inside = _PACKAGE / "shipped"
    return (inside if inside.is_dir() else _PACKAGE.parent) / name


def private_directory(path: Path) -> Path:
    """Make `path` and its missing parents, readable by this user only; one that exists is left as it is.

    Raises PlaceError where it can't be made.
    """
    try:
        if not path.is_dir():
            private_directory(path.parent)
            path.mkdir(PRIVATE, exist_ok=True)
            path.chmod(PRIVATE)  # whatever the umask takes away
    except OSError as error:
        remedy = REMEDIES[error.errno] if error.errno in _NOT_OF_PLACES else _remedy(path)
        raise PlaceError(f"{path} can't be made ({error.strerror}): {remedy}") from error
    return path


def _remedy(path: Path) -> str:
    """Return which variable leads to a directory that can't be made."""
    if is_on_way_to_given_ledger(path):
        return f"correct {LEDGER_VARIABLE}"
    concerned = [
        name for name, place in (("XDG_DATA_HOME", data_home), ("XDG_STATE_HOME", state_home)) if _on_way(place, path)
    ]
    return f"give a writable {' and '.join(concerned) or 'XDG_STATE_HOME'}"


def is_on_way_to_given_ledger(path: Path) -> bool:
    """Return whether `path` is the ledger that the environment names, or one of its parents."""
    ledger = Path(os.environ.get(LEDGER_VARIABLE) or "/")
    return path in {ledger, *ledger.parents}


def _on_way(place: Callable[[], Path], path: Path) -> bool:
    """Return whether `path` is above or below a place of ours."""
    try:
        own = place()
    except PlaceError:  # of a home that isn't there nothing is made
        return False
    return path.is_relative_to(own) or own.is_relative_to(path)
