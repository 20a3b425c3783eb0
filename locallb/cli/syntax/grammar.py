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
Give every Kubernetes Service of type LoadBalancer on a local cluster its own IP address on this host.

first steps:
  locallb watch      serve every kind cluster, or the current context if it
                     is of this host; after Ctrl-C the proxies keep serving
  locallb status     show Services with their addresses and ports
  locallb doctor     show what this host allows, and what is in the way
  locallb destroy    remove everything
"""
COMMANDS = {
    "up": "serve the stack's Services: create, update and remove what the plan says",
    "preview": "show what `up` would do, without changing anything",
    "refresh": "compare the state with reality, and correct the state",
    "destroy": "remove everything that this stack made",
    "status": "show Services, addresses, ports and health, checked now",
    "open": "open a Service, a Gateway or an Ingress in your browser, or print its URL",
    "top": "show traffic through Services: connections, requests, failures, bytes and latencies",
    "fault": "make some connections or requests fail for a while, for tests; list faults, or end them",
    "drain": "keep new connections away from backends of a Service, or from all; list drains, or undo them",
    "logs": "print connections and requests as they end, one line each, until interrupted",
    "watch": "keep the stack in sync: follow its sources and proxies until stopped",
    "gc": "list what a lost state left behind, and remove it on request",
    "image": "make an image of the installed Envoy, for the runtimes docker and podman without a registry",
    "doctor": "show what this host allows, what is in the way, and how to fix it",
    "host": "show or change what this host allows: ports, proxies, pools, a shared ledger",
    "state": "check, restore or move the stack's state",
    "gateway": "install the Gateway API CRDs that a cluster lacks",
    "ca": "show, create, trust and export your own authority for certificates",
    "stack": "list the project's stacks",
    "init": "write the configuration of a new stack, named by --stack, and a project if there is none",
    "help": "print a page of the documentation, or list the pages",
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
    """Add the options that are allowed before and after the command."""

    def default(value: object) -> object:
        return argparse.SUPPRESS if suppress else value

    parser.add_argument(
        "-C",
        dest="directory",
        metavar="DIR",
        type=Path,
        default=default(None),
        help="a directory in the project; the project's own: also if another user may change it",
    )
    parser.add_argument("-s", "--stack", metavar="NAME", default=default("dev"), help="the stack (default: dev)")
    parser.add_argument("--json", action="store_true", default=default(False), help="print one JSON document")
    parser.add_argument("--version", action="version", version=f"local-lb {__version__}")
