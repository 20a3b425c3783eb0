"""The command `locallb`: what a user types and sees. Decisions are made below, in planning and in the engine."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from locallb.cli.arguments import parse


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; every failure is told in a sentence."""
    args = parse(words)
    # The SDK takes most of a second to import: not before the command line is understood.
    from locallb.cli.run import run  # noqa: PLC0415

    return run(args)


if __name__ == "__main__":
    sys.exit(main())
