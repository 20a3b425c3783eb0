"""Runs a parsed command line: what may fail is caught here, once, and told in one sentence."""

from __future__ import annotations

import os
import sys

from locallb.cli import commands, doctor, host, image, leftovers, state, watch
from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.report import command as report
from locallb.cli.session import Session
from locallb.cli.targets import TargetError
from locallb.clients import ClientError, limits
from locallb.engine import EngineError
from locallb.planning.settings import SettingsError
from locallb.sources import SourceError

COMMANDS = {
    "up": commands.up,
    "preview": commands.preview,
    "refresh": commands.refresh,
    "destroy": commands.destroy,
    "status": commands.status,
    "gc": leftovers.gc,
    "host": host.host,
    "state": state.check,
    "watch": watch.watch,
}

LEADERS = frozenset({"up", "refresh", "destroy"})
"""Commands that change a stack: with leader election they hold its Lease meanwhile."""


def run(args: Arguments) -> int:
    """Run the command and give its exit code."""
    out = Out()
    try:
        limits.take_files()
        if args.command == "image":  # it needs no project
            return image.image(args, out)
        if args.command == "doctor":  # it also looks where there is no project, or a broken one
            return doctor.doctor(args, out)
        if args.offline:  # neither state nor backend is needed
            return report.offline(args, out)
        session = Session.open(args.directory, args.stack)
        if args.command in {"up", "preview", "refresh", "destroy"}:
            session.require_docker(planned=args.command in {"up", "preview"})
        if args.command not in LEADERS or session.election() is None:
            return COMMANDS[args.command](session, args, out)
        from locallb.cli.leading import leading  # noqa: PLC0415 - loads a client of Kubernetes

        with leading(session.settings, session.home):
            return COMMANDS[args.command](session, args, out)
    except (ClientError, EngineError, SettingsError, SourceError, commands.NotConfirmed, TargetError) as error:
        out.error(str(error))
        return commands.FAILED
    except KeyboardInterrupt:
        out.error("interrupted; run the command again to finish")
        sys.stdout.flush()
        os._exit(commands.INTERRUPTED)  # what providers still do in their threads must not hold up who wants to leave
