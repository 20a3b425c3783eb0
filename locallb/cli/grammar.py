"""The words that `locallb` understands: commands, their options, the help of each."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from locallb import __version__
from locallb.cli.exit_code import MEANINGS
from locallb.cli.parser import ANSWER, Parser

EPILOG = "exit codes:\n" + "".join(f"{code.value:>3}  {meaning}\n" for code, meaning in MEANINGS.items())
SHELLS = ("bash", "zsh", "fish")
ORDERS = ("name", "connections", "requests", "failures", "bytes")
"""What `top` sorts by."""
TROUBLES = ("rejected", "pending", "degraded")
"""States of a Service that `up --fail-on` may name."""

COMMANDS = {
    "up": "serve the stack's Services: create, update and remove what the plan asks for",
    "preview": "show what `up` would do; changes nothing anywhere",
    "refresh": "compare the state with what is really there, and correct the state",
    "destroy": "remove all that this stack made",
    "status": "show Services, addresses, ports and health, checked now",
    "top": "show what flows through Services: connections, requests, failures, bytes and latencies",
    "watch": "keep the stack converged: follow its sources and its proxies until stopped",
    "gc": "list what a lost state left behind, and remove it on request",
    "image": "make a Docker image of the installed Envoy, for the runtime docker without a registry",
    "doctor": "say what this host allows, what is in the way, and what to do about it",
    "host": "show or change what this host allows: ports, proxies, pools, a shared ledger",
    "state": "look after the stack's state file",
    "ca": "show, make and hand on your own authority for certificates",
    "stack": "list the project's stacks",
    "init": "write the configuration of a new stack, named by --stack, and a project where there is none",
    "help": "print a page of the documentation, or which there are",
    "completion": "print a script that completes commands, stacks and Services in your shell",
}
ACTIONS = {
    "setup": "print what would lift this host's limits, and do it with --apply",
    "teardown": "print what would bring back what setup found, and do it with --apply",
    "status": "show what of it is done",
}
CA = {
    "show": "show your own authority: where it is, what it may certify, and until when",
    "create": "make it now; with --replace another one, in place of the one that there is",
    "export": "print its certificate, which is public, or write it into a file: for containers and other programs",
}
LIST = "list every stack that has a configuration or a state"
ADOPT = "move the stack to this user and state home: its proxies end there, and the next `up` starts them here"
CHECK = "check the rules that the Pulumi CLI checks as well"
RESTORE = "go back to the last good state where the state can't be used; nothing is lost"


def make_parser() -> Parser:
    """Make the parser of the whole command line."""
    common = Parser(add_help=False)
    _add_common(common, suppress=True)
    parser = Parser(
        prog="locallb",
        description="An address of its own for every Kubernetes Service of type LoadBalancer on a local cluster.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_common(parser, suppress=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text, parents=[common])
        for names, add in OPTIONS:
            if name in names:
                add(command, common)
    return parser


def _add_yes(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("-y", "--yes", action="store_true", help="don't ask")


def _add_expectation(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("--expect-no-changes", action="store_true", help="exit with 7 if anything changes")


def _add_targets(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-t", "--target", dest="targets", metavar="SERVICE", action="append", default=[], help="only this one"
    )


def _add_demands(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--fail-on",
        metavar="STATE",
        choices=TROUBLES,
        action="append",
        default=[],
        help=f"exit with 8 if a Service is then {', '.join(TROUBLES[:-1])} or {TROUBLES[-1]}",
    )


def _add_services(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("services", metavar="SERVICE", nargs="*", help="tell all about these")
    command.add_argument("-w", "--watch", dest="repeat", action="store_true", help="until interrupted")
    command.add_argument("--traffic", action="store_true", help="what flows through them, counted by their proxies")


def _add_top(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("services", metavar="SERVICE", nargs="*", help="only names that contain one of these")
    command.add_argument("--once", action="store_true", help="what was counted so far, and no more")
    command.add_argument("--sort", choices=ORDERS, default=ORDERS[0], help=f"by what (default: {ORDERS[0]})")


def _add_shells(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("action", metavar="SHELL", choices=(*SHELLS, ANSWER), help=" or ".join(SHELLS))
    command.add_argument("services", nargs=argparse.REMAINDER, help=argparse.SUPPRESS).required = False


def _add_topic(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("action", metavar="TOPIC", nargs="?", default="", help="such as configuration")


def _add_list(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help=LIST, description=LIST, parents=[common])


def _add_state_actions(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("check", help=CHECK, description=CHECK, parents=[common])
    restore = actions.add_parser("restore", help=RESTORE, description=RESTORE, parents=[common])
    _add_yes(restore, common)
    adopt = actions.add_parser("adopt", help=ADOPT, description=ADOPT, parents=[common])
    _add_yes(adopt, common)


def _add_ending(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("--stop-watch", action="store_true", help="end a `watch` of the stack first")


def _add_report(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
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


def _add_place(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("place", metavar="DIR", type=Path, nargs="?", help="the project (default: here)")
    _add_sources(command, all_of_kind=None)


def _add_own_sources(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    _add_sources(command.add_argument_group("where there is no project, what to serve"), all_of_kind="?")


def _add_sources(command: argparse._ActionsContainer, *, all_of_kind: str | None) -> None:
    """Add the options that name sources; with `all_of_kind`, `?`, `--kind` alone means each that there is."""
    command.add_argument(
        "--manifests",
        metavar="PATH",
        dest="sources",
        action="append",
        default=[],
        type=lambda path: ("manifests", path),
        help="a directory of manifests, or a file",
    )
    command.add_argument(
        "--kubernetes",
        "--context",
        metavar="CONTEXT",
        dest="sources",
        action="append",
        type=lambda context: ("kubernetes", {"name": context, "context": context}),
        help="a running cluster, by its context in your kubeconfig",
    )
    command.add_argument(
        "--kind",
        metavar="CLUSTER",
        dest="sources",
        action="append",
        nargs=all_of_kind,
        const=("kind", "all") if all_of_kind else None,
        type=lambda name: ("kind", "all" if name == "all" else [name]),
        help="a cluster of kind; all: each that there is",
    )


def _add_watch(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("--plain", action="store_true", help="print lines, also on a terminal (--json: JSON lines)")
    command.add_argument(
        "--metrics",
        metavar="ADDR:PORT",
        type=_loopback,
        help="serve Prometheus metrics and health there, on the loopback: 127.0.0.1:9477",
    )


def _loopback(text: str) -> str:
    from locallb.config.loopback_socket import loopback_place  # noqa: PLC0415 - most commands need none

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


def _add_ca(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in CA.items():
        action = actions.add_parser(name, help=text, description=text, parents=[common])
        if name == "create":
            action.add_argument("--replace", dest="replaces", action="store_true", help="whatever there is")
            action.add_argument(
                "--domain", dest="domains", metavar="NAME", action="append", help="certify hosts below it as well"
            )
        if name == "export":
            action.add_argument("place", metavar="FILE", type=Path, nargs="?", help="default: standard output")


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


OPTIONS: tuple[tuple[frozenset[str], Callable[[argparse.ArgumentParser, argparse.ArgumentParser], None]], ...] = (
    (frozenset({"up", "destroy", "gc", "refresh"}), _add_yes),
    (frozenset({"up", "preview", "refresh"}), _add_expectation),
    (frozenset({"up", "preview"}), _add_targets),
    (frozenset({"up"}), _add_demands),
    (frozenset({"preview"}), _add_report),
    (frozenset({"status"}), _add_services),
    (frozenset({"top"}), _add_top),
    (frozenset({"watch"}), _add_watch),
    (frozenset({"host"}), _add_actions),
    (frozenset({"state"}), _add_state_actions),
    (frozenset({"destroy"}), _add_ending),
    (frozenset({"stack"}), _add_list),
    (frozenset({"ca"}), _add_ca),
    (frozenset({"init"}), _add_place),
    (frozenset({"up", "preview", "watch"}), _add_own_sources),
    (frozenset({"completion"}), _add_shells),
    (frozenset({"help"}), _add_topic),
)
"""What each command takes beside the common options."""
