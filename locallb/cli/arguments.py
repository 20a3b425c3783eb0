"""What the user may type."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from locallb.planning.loopback_place import loopback_place

EPILOG = """exit codes:
  0  done
  1  something failed; the message says what, and what to do
  2  the command line can't be understood
  7  --expect-no-changes, and there are changes
 10  `preview`: an address changes, and local-lb:policies forbids it
 11  `preview`: a port is open to everybody, and local-lb:policies forbids it
 12  `preview`: a port isn't among those that local-lb:policies allows
 13  `preview`: a pool keeps less room than local-lb:policies asks for
130  interrupted
"""

COMMANDS = {
    "up": "serve the stack's Services: create, update and remove what the plan asks for",
    "preview": "show what `up` would do; changes nothing anywhere",
    "refresh": "compare the state with what is really there, and correct the state",
    "destroy": "remove all that this stack made",
    "status": "show Services, addresses, ports and health, checked now",
    "watch": "keep the stack converged: follow its sources and its proxies until stopped",
    "gc": "list what a lost state left behind, and remove it on request",
    "image": "make a Docker image of the installed Envoy, for the runtime docker without a registry",
    "doctor": "say what this host allows, what is in the way, and what to do about it",
    "host": "show or change what this host allows: ports, proxies, pools, a shared ledger",
    "state": "look after the stack's state file",
}
ACTIONS = {
    "setup": "print what would lift this host's limits, and do it with --apply",
    "teardown": "print what would bring back what setup found, and do it with --apply",
    "status": "show what of it is done",
}
CHECK = "check the rules that the Pulumi CLI checks as well"


@dataclass(frozen=True, slots=True)
class Arguments:
    """A parsed command line."""

    command: str
    directory: Path
    stack: str
    json: bool
    yes: bool
    expect_no_changes: bool
    targets: tuple[str, ...] = ()
    """Load balancers to restrict an update to; empty means all."""
    action: str = ""
    """The word after `host` or `state`."""
    apply: bool = False
    persist: bool = False
    group: str = ""
    format: str = "tree"
    """How `preview` tells: tree, markdown, json or html."""
    against: str | None = None
    """A directory or a revision that `preview` compares with; None for the stack's state."""
    from_pulumi: Path | None = None
    """What `pulumi preview --json` printed, for `preview` to tell."""
    plain: bool = False
    """`watch` prints lines even on a terminal."""
    metrics: str = ""
    """Where `watch` serves metrics and health: a loopback address and a port; empty as the configuration says."""

    @property
    def offline(self) -> bool:
        """Whether a preview needs neither the stack's state nor a host."""
        return self.against is not None or self.from_pulumi is not None


def parse(words: Sequence[str] | None = None) -> Arguments:
    """Parse a command line; exits with 2 when it can't be understood."""
    parser = _parser()
    given = parser.parse_args(words)
    if problem := _contradiction(given):
        parser.error(problem)
    return Arguments(
        command=given.command,
        directory=given.directory,
        stack=given.stack,
        json=given.json,
        yes=getattr(given, "yes", False),
        expect_no_changes=getattr(given, "expect_no_changes", False),
        targets=tuple(getattr(given, "targets", ())),
        action=getattr(given, "action", ""),
        apply=getattr(given, "apply", False),
        persist=getattr(given, "persist", False),
        group=getattr(given, "group", ""),
        format=getattr(given, "format", "tree"),
        against=getattr(given, "against", None),
        from_pulumi=getattr(given, "from_pulumi", None),
        plain=getattr(given, "plain", False),
        metrics=getattr(given, "metrics", None) or "",
    )


def _contradiction(given: argparse.Namespace) -> str:
    """Say which options of `preview` can't stand together; empty if all can."""
    report = getattr(given, "format", "tree") != "tree" or getattr(given, "against", None) is not None
    report = report or getattr(given, "from_pulumi", None) is not None
    if report and given.json:
        return "--json is the run itself, of the stack's state; for the report say --format json alone"
    if report and getattr(given, "targets", ()):
        return "a report is of the whole stack; leave out --target"
    return ""


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    _add_common(common, suppress=True)
    parser = argparse.ArgumentParser(
        prog="locallb",
        description="An address of its own for every Kubernetes Service of type LoadBalancer on a local cluster.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_common(parser, suppress=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text, parents=[common])
        if name in {"up", "destroy", "gc", "refresh"}:
            command.add_argument("-y", "--yes", action="store_true", help="don't ask")
        if name in {"up", "preview", "refresh"}:
            command.add_argument("--expect-no-changes", action="store_true", help="exit with 7 if anything changes")
        if name in {"up", "preview"}:
            command.add_argument(
                "-t", "--target", dest="targets", metavar="SERVICE", action="append", default=[], help="only this one"
            )
        if name == "preview":
            _add_report(command)
        if name == "watch":
            _add_watch(command)
        if name == "host":
            _add_actions(command, common)
        if name == "state":
            actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
            actions.add_parser("check", help=CHECK, description=CHECK, parents=[common])
    return parser


def _add_report(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--format", choices=("tree", "markdown", "json", "html"), default="tree", help="how to tell it (default: tree)"
    )
    sides = command.add_mutually_exclusive_group()
    sides.add_argument(
        "--against",
        metavar="DIR|REV",
        help="compare with another directory or Git revision instead of the stack's state",
    )
    sides.add_argument(
        "--from-pulumi", metavar="FILE", type=Path, help="tell what `pulumi preview --json` printed into FILE"
    )


def _add_watch(command: argparse.ArgumentParser) -> None:
    command.add_argument("--plain", action="store_true", help="print lines, also on a terminal (--json: JSON lines)")
    command.add_argument(
        "--metrics",
        metavar="ADDR:PORT",
        type=_loopback,
        help="serve Prometheus metrics and health there, on the loopback: 127.0.0.1:9477",
    )


def _loopback(text: str) -> str:
    try:
        loopback_place(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _add_actions(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text, parents=[common])
        if name != "status":
            action.add_argument("--apply", action="store_true", help="do it (as root)")
        if name != "teardown":
            action.add_argument("--group", metavar="NAME", default="", help="who shares the ledger (default: yours)")
        if name == "setup":
            action.add_argument("--persist", action="store_true", help="also for the next boots (sysctl.d, systemd)")


def _add_common(parser: argparse.ArgumentParser, *, suppress: bool) -> None:
    """Add the options that may stand before or after the command."""

    def default(value: object) -> object:
        return argparse.SUPPRESS if suppress else value

    parser.add_argument(
        "-C", dest="directory", metavar="DIR", type=Path, default=default(Path()), help="the project's directory"
    )
    parser.add_argument("-s", "--stack", metavar="NAME", default=default("dev"), help="the stack (default: dev)")
    parser.add_argument("--json", action="store_true", default=default(False), help="print one JSON document")
