"""The commands that `locallb` understands, the help of each, and the options that all of them take.

Not here: the options of single commands (`options`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from locallb import __version__
from locallb.cli.exit_code import MEANINGS
from locallb.cli.syntax.options import OPTIONS
from locallb.cli.syntax.parser import COMMAND, Parser

EPILOG = "exit codes:\n" + "".join(f"{code.value:>3}  {meaning}\n" for code, meaning in MEANINGS.items())
FIRST_STEPS = """\
Every Kubernetes Service of type LoadBalancer on a local cluster gets an address of its own on this host.

first steps:
  locallb watch      serve every cluster of kind, or the current context; Ctrl-C
                     ends the watch, not what serves
  locallb status     show Services with their addresses and ports
  locallb doctor     say what this host allows, and what is in the way
  locallb destroy    remove all of it
"""
COMMANDS = {
    "up": "serve the stack's Services: create, update and remove what the plan asks for",
    "preview": "show what `up` would do; changes nothing anywhere",
    "refresh": "compare the state with what is really there, and correct the state",
    "destroy": "remove all that this stack made",
    "status": "show Services, addresses, ports and health, checked now",
    "open": "open a Service, a Gateway or an Ingress in your browser, or print its URL",
    "top": "show what flows through Services: connections, requests, failures, bytes and latencies",
    "fault": "let some connections or requests fail for a while, for tests; list what is ordered, or end it",
    "drain": "keep new connections away from backends of a Service, or from all; list what is drained, or undo it",
    "logs": "show connections and requests as they end, a line each, until interrupted",
    "watch": "keep the stack converged: follow its sources and its proxies until stopped",
    "gc": "list what a lost state left behind, and remove it on request",
    "image": "make an image of the installed Envoy, for the runtimes docker and podman without a registry",
    "doctor": "say what this host allows, what is in the way, and what to do about it",
    "host": "show or change what this host allows: ports, proxies, pools, a shared ledger",
    "state": "look after the stack's state file",
    "gateway": "install the definitions of Gateway API that a cluster lacks",
    "ca": "show, make, trust and hand on your own authority for certificates",
    "stack": "list the project's stacks",
    "init": "write the configuration of a new stack, named by --stack, and a project where there is none",
    "help": "print a page of the documentation, or which there are",
    "completion": "print a script that completes commands, stacks and Services in your shell",
}


def make_parser() -> Parser:
    """Make the parser of the whole command line."""
    common = Parser(add_help=False)
    _add_common(common, suppress=True)
    parser = Parser(
        prog="locallb",
        description=FIRST_STEPS,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_common(parser, suppress=False)
    commands = parser.add_subparsers(dest="command", metavar=COMMAND, required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text, parents=[common])
        for names, add in OPTIONS:
            if name in names:
                add(command, common)
    return parser


def _add_common(parser: argparse.ArgumentParser, *, suppress: bool) -> None:
    """Add the options that may stand before or after the command."""

    def default(value: object) -> object:
        return argparse.SUPPRESS if suppress else value

    parser.add_argument(
        "-C",
        dest="directory",
        metavar="DIR",
        type=Path,
        default=default(Path()),
        help="a place in the project",
    )
    parser.add_argument("-s", "--stack", metavar="NAME", default=default("dev"), help="the stack (default: dev)")
    parser.add_argument("--json", action="store_true", default=default(False), help="print one JSON document")
    parser.add_argument("--version", action="version", version=f"local-lb {__version__}")
