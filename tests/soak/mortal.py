"""`locallb` whose followers of clusters end where nobody expects it, once for each file that lies in a directory.

    python mortal.py DIRECTORY WORD...

A file's name is that of a method; whoever calls it next removes the file, and something is raised there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from locallb.cli import main
from locallb.kubernetes.api.feed import Feed
from locallb.sources.kubernetes.informers import FollowedKinds

PLACES = {"_take": FollowedKinds, "_replace": FollowedKinds, "_pace": FollowedKinds, "list": Feed}
"""What only followers call, while they list and watch."""


class UnexpectedError(BaseException):
    """What nobody expects."""


def mortal(work: Callable[..., Any], order: Path) -> Callable[..., Any]:
    """Return `work` as it ends where `order` lies."""

    def work_or_end(*args: Any, **terms: Any) -> Any:  # noqa: ANN401 - anything
        try:
            order.unlink()
        except FileNotFoundError:
            return work(*args, **terms)
        raise UnexpectedError("on purpose")

    return work_or_end


if __name__ == "__main__":
    for name, owner in PLACES.items():
        setattr(owner, name, mortal(getattr(owner, name), Path(sys.argv[1]) / name))
    del sys.argv[1]
    sys.exit(main())
