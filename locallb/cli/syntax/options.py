"""The options and actions of single commands in addition to the common options.

Not here: the commands themselves (`grammar`), and the options that name sources (`source_options`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from ipaddress import ip_network
from pathlib import Path

from locallb.cli.syntax.order_options import add_drain, add_fault
from locallb.cli.syntax.parser import ANSWER
from locallb.cli.syntax.source_options import add_own_sources, add_place
from locallb.model.formatting import any_of
from locallb.model.identities import IPNetwork

SHELLS = ("bash", "zsh", "fish")
OVERRIDES = ("name", "connections", "requests", "failures", "bytes")
"""What `top` sorts by."""
FAILURES = ("rejected", "pending", "degraded")
"""States of a Service that `up --fail-on` may name."""

ACTIONS = {
    "setup": "print what would lift this host's limits, and do it with --yes",
    "teardown": "print what would restore what setup found, and do it with --yes",
    "status": "show which changes are done and which are missing",
}
CA = {
    "show": "show your own authority: where it is, what it may certify, and until when",
    "create": "create the authority now; with --replace, replace an existing one",
    "export": "print its certificate (public), or write it to a file, for containers and other programs",
    "trust": "print what would make this host's browsers and programs trust it, and do it with --yes",
    "untrust": "print what would remove what `ca trust` added, and do it with --yes",
}
INSTALL = "show which Gateway API CRDs a cluster lacks, and install them with --yes"
LIST = "list every stack that has a configuration or a state"
ADOPT = "move the stack to this user and state home: its proxies end there, and the next `up` starts them here"
CHECK = "check the state against the rules that the Pulumi CLI enforces"
RESTORE = "go back to the last good state if the current one is unusable; nothing is lost"


def _add_yes(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("-y", "--yes", action="store_true", help="don't ask")


def _add_doing(command: argparse.ArgumentParser, text: str) -> None:
    """Add the option of a command that otherwise prints what it would do."""
    command.add_argument("-y", "--yes", dest="apply", action="store_true", help=text)
    command.add_argument("--apply", action="store_true", help=argparse.SUPPRESS)


def _add_expectation(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("--expect-no-changes", action="store_true", help="exit with 7 if anything changes")


def _add_engine(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    engines = ("docker", "podman")
    command.add_argument("--runtime", choices=engines, default=engines[0], help="where to make it (default: docker)")


def _add_targets(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-t",
        "--target",
        dest="targets",
        metavar="SERVICE",
        action="append",
        default=[],
        help="only this one; repeatable",
    )


def _add_demands(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--fail-on",
        metavar="STATE",
        choices=FAILURES,
        action="append",
        default=[],
        help=f"exit with 8 if a Service ends up {any_of(FAILURES)}; may be repeated",
    )


def _add_services(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("services", metavar="SERVICE", nargs="*", help="show these in detail")
    command.add_argument("-w", "--watch", dest="repeat", action="store_true", help="repeat until interrupted")
    command.add_argument("--traffic", action="store_true", help="show traffic through them, counted by their proxies")


def _add_open(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("services", metavar="SERVICE", nargs="*", help="which one; optional if there is only one")
    command.add_argument("--port", metavar="N", type=_port, default=0, help="which of its ports (default: the Web's)")
    command.add_argument("--print", dest="only_print", action="store_true", help="print the URL, open nothing")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len("65535") and 0 < int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: use a number from 1 to 65535")
    return int(text)


def _add_top(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("services", metavar="SERVICE", nargs="*", help="only names that contain one of these")
    command.add_argument("--once", action="store_true", help="show what was counted so far, and exit")
    command.add_argument(
        "--sort", choices=OVERRIDES, default=OVERRIDES[0], help=f"sort by this (default: {OVERRIDES[0]})"
    )


def _add_logs(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("services", metavar="SERVICE", nargs="*", help="only names that contain one of these")
    command.add_argument("-f", "--follow", action="store_true", help="accepted, without effect")


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
        "--format", choices=("tree", "markdown", "json", "html"), default="tree", help="output format (default: tree)"
    )
    sides = command.add_mutually_exclusive_group()
    sides.add_argument(
        "--against",
        metavar="DIR|REV",
        help="compare with another directory or Git revision instead of the stack's state",
    )
    sides.add_argument(
        "--from-pulumi", metavar="FILE", type=Path, help="report on FILE, the output of `pulumi preview --json`"
    )


def _add_watch(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("--plain", action="store_true", help="print lines, also on a terminal (--json: JSON lines)")
    for option, usual, what in (
        ("--metrics", "127.0.0.1:9477", "serve Prometheus metrics and health at a loopback address"),
        ("--page", "127.0.0.1:9478", "serve a live page at a loopback address, for browsers of this host"),
    ):
        command.add_argument(
            option,
            metavar="ADDR:PORT",
            nargs="?",
            const=usual,
            type=partial(_loopback, usual),
            help=f"{what}; a port alone is of 127.0.0.1, without one it is {usual}",
        )


def _loopback(usual: str, text: str) -> str:
    """Read a place on the loopback, or its port alone."""
    from locallb.config.loopback_socket import loopback_place  # noqa: PLC0415 - most commands need none

    place = f"127.0.0.1:{text}" if text.isascii() and text.isdecimal() else text
    try:
        loopback_place(place, usual)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return place


def _add_actions(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text, parents=[common])
        if name != "status":
            _add_doing(action, "do it (as root)")
        if name != "teardown":
            action.add_argument(
                "--group", metavar="NAME", default="", help="group that shares the ledger (default: yours)"
            )
        if name == "setup":
            action.add_argument("--persist", action="store_true", help="also after reboots (sysctl.d, systemd)")
            for option, metavar, kind, what in (
                ("--allow-zone", "ZONE", str, "also a zone that isn't reserved for local use"),
                ("--allow-network", "CIDR", _network, "also addresses of this public network"),
                ("--on-behalf-of", "USER", str, "also for a project of this other user"),
            ):
                action.add_argument(
                    option, metavar=metavar, type=kind, action="append", default=[], help=f"{what}; repeatable"
                )


def _network(text: str) -> IPNetwork:
    try:
        return ip_network(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}: write a network such as 203.0.113.0/24") from None


def _add_ca(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in CA.items():
        action = actions.add_parser(name, help=text, description=text, parents=[common])
        if name == "create":
            action.add_argument("--replace", dest="replaces", action="store_true", help="replace an existing authority")
            action.add_argument(
                "--domain",
                dest="domains",
                metavar="NAME",
                action="append",
                help="also allow hosts below it; repeatable",
            )
        if name == "export":
            action.add_argument("place", metavar="FILE", type=Path, nargs="?", help="default: standard output")
        if name in {"trust", "untrust"}:
            _add_doing(action, "do it")


def _add_gateway(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    install = actions.add_parser("install-crds", help=INSTALL, description=INSTALL, parents=[common])
    install.add_argument(
        "--channel", choices=("standard", "experimental"), default="", help="default: the cluster's own"
    )
    install.add_argument("--context", metavar="CONTEXT", default="", help="the cluster (default: the current one)")
    install.add_argument("--kubeconfig", metavar="FILE", default="", help="the kubeconfig (default: kubectl's)")
    install.add_argument("-y", "--yes", action="store_true", help="do it")


OPTIONS: tuple[tuple[frozenset[str], Callable[[argparse.ArgumentParser, argparse.ArgumentParser], None]], ...] = (
    (frozenset({"up", "destroy", "gc", "refresh", "watch"}), _add_yes),
    (frozenset({"up", "preview", "refresh"}), _add_expectation),
    (frozenset({"up", "preview"}), _add_targets),
    (frozenset({"up"}), _add_demands),
    (frozenset({"preview"}), _add_report),
    (frozenset({"status"}), _add_services),
    (frozenset({"open"}), _add_open),
    (frozenset({"top"}), _add_top),
    (frozenset({"fault"}), add_fault),
    (frozenset({"drain"}), add_drain),
    (frozenset({"logs"}), _add_logs),
    (frozenset({"watch"}), _add_watch),
    (frozenset({"host"}), _add_actions),
    (frozenset({"state"}), _add_state_actions),
    (frozenset({"destroy"}), _add_ending),
    (frozenset({"stack"}), _add_list),
    (frozenset({"ca"}), _add_ca),
    (frozenset({"gateway"}), _add_gateway),
    (frozenset({"init"}), add_place),
    (frozenset({"up", "preview", "watch"}), add_own_sources),
    (frozenset({"completion"}), _add_shells),
    (frozenset({"help"}), _add_topic),
    (frozenset({"image"}), _add_engine),
)
"""Options of each command in addition to the common options."""
