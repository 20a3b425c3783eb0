"""The command `locallb`: what a user types and sees. Decisions are made below, in planning and in the engine.

This is only the entry point: it prepares the process for signals and unusual streams before anything else is loaded.
"""

from __future__ import annotations

from locallb.cli.process import finish, prepare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from locallb.cli.arguments import Arguments


def main(terms: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; print every failure as one sentence.

    Without `terms` they are the process's own, and the process is made ready.
    """
    if terms is None:
        prepare()
    try:
        code = _run(terms)
    except SystemExit as leaving:  # from argparse
        if terms is not None:
            raise
        code = int(leaving.code or 0)
    return finish(code) if terms is None else code


def _run(terms: Sequence[str] | None) -> int:
    try:
        args = _parsed(terms)
        from locallb.cli.run import run  # noqa: PLC0415 - what is understood at once needs nothing more

        return run(args)
    except Exception as error:  # noqa: BLE001 - a library that can't be loaded, a mistake of ours
        from locallb.cli.failures import complain  # noqa: PLC0415 - as above

        return complain(error)


def _parsed(terms: Sequence[str] | None) -> Arguments:
    """Parse the command line; where it asks for JSON, print also as a document why it can't be understood."""
    from locallb.cli.arguments import parse  # noqa: PLC0415 - nothing is loaded before signals are caught
    from locallb.cli.parser import Misunderstood  # noqa: PLC0415 - as above

    try:
        return parse(terms)
    except Misunderstood as error:
        if error.json:
            from locallb.cli.console import Out  # noqa: PLC0415 - for this alone
            from locallb.cli.failures import Exit  # noqa: PLC0415 - as above
            from locallb.cli.run import print_failure  # noqa: PLC0415 - as above

            print_failure(error.command, Exit.USAGE, [error.sentence], Out())
        raise
