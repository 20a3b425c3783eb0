"""The grammar of the command line: the commands of `locallb`, their help, options and arguments.

Not here: how a mistake is reported (`parser`), and how a parsed command runs (`run`).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any, cast

from locallb import __version__
from locallb.cli.failures import MEANINGS
from locallb.cli.parser import ANSWER, COMMAND, LateParser, Parser, Renamed
from locallb.model.identities import IPNetwork
from locallb.model.texts import any_of
from locallb.patterns import pattern

LONGEST = 7 * 24 * 3600
"""Seconds that a fault may be ordered for."""
_TIME = pattern(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", re.ASCII)
_SIZES = (24 * 3600, 3600, 60, 1)


def add_fault(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    """Add what `fault` takes."""
    command.add_argument(
        "services", metavar="SERVICE", nargs="*", help="which ones; without options: list their faults"
    )
    fates = {
        "refuse": "is closed at once",
        "hang": "is never answered",
        "reset": "is closed once the client has sent something",
    }
    for name, fate in fates.items():
        text = f"this share of new connections {fate}, such as 10%%"
        command.add_argument(f"--{name}", metavar="SHARE", type=_share, default=0, help=text)
    command.add_argument(
        "--delay",
        metavar="TIME[:SHARE]",
        type=_parsed("RequestDelay"),
        help="delay requests to a Gateway or an Ingress, such as 200ms, or 2s:10%%",
    )
    command.add_argument(
        "--status",
        metavar="CODE[:SHARE]",
        type=_parsed("RequestFailure"),
        help="answer them with this instead of a backend, such as 503, or 503:10%%",
    )
    command.add_argument(
        "--for", dest="seconds", metavar="TIME", type=_time, default=_time("5m"), help="such as 90s or 1h (default: 5m)"
    )
    _add_backends(command, "with --down: this Node, Pod or address; may be repeated")
    command.add_argument("--down", action="store_true", help="treat the backends as if they refused connections")
    command.add_argument("--undo", dest="ends", action="store_true", help="end it now; without SERVICE, end all faults")
    command.add_argument("--end", dest="ends", action=Renamed, const="--undo")


def add_drain(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    """Add what `drain` takes."""
    command.add_argument("services", metavar="SERVICE", nargs="*", help="which ones; without any: list what is drained")
    _add_backends(command, "only this Node, Pod or address; may be repeated")
    command.add_argument("--undo", action="store_true", help="allow new connections again; without SERVICE, for all")


def _add_backends(command: argparse.ArgumentParser, text: str) -> None:
    command.add_argument("--backend", dest="backends", metavar="NAME", action="append", default=[], help=text)


def _share(text: str) -> int:
    from locallb.model.faults import parse_share  # noqa: PLC0415 - most commands need none

    try:
        return parse_share(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parsed(name: str) -> Callable[[str], object]:
    """Return what reads an option as a class of faults does."""

    def parsed(text: str) -> object:
        from locallb.model import faults  # noqa: PLC0415 - most commands need none

        try:
            return getattr(faults, name).parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def _time(text: str) -> int:
    """Read a time in seconds."""
    match = _TIME.fullmatch(text)
    seconds = sum(int(number or 0) * size for number, size in zip(match.groups(), _SIZES, strict=True)) if match else 0
    if not 0 < seconds <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90s, 5m or 1h30m, and at most 7d")
    return seconds


def add_place(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    """Add the options of `init`."""
    command.add_argument("place", metavar="DIR", type=Path, nargs="?", help="the project (default: here)")
    _add_sources(command, all_of_kind=None)


def add_own_sources(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    """Add what a command serves where there is no project."""
    _add_sources(command.add_argument_group("what to serve, if there is no project"), all_of_kind="?")


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
        help="a kind cluster; all: every one",
    )


SHELLS = ("bash", "zsh", "fish")
OVERRIDES = ("name", "connections", "requests", "failures", "bytes")
"""What `top` sorts by."""
FAILURES = ("rejected", "pending", "degraded")
"""States of a Service that `up --fail-on` may name."""

STATES = ("serving", *FAILURES)
FORMS, JSONPATH = ("wide", "json", "yaml", "name"), "jsonpath="
"""Forms in which `status` shows Services, as kubectl names them."""
GOALS = ("serving", "address", "name")
"""What `wait` waits for."""

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
SERVICE = {
    "install": "write, enable and start a unit of your systemd that watches the stack",
    "start": "start it",
    "stop": "stop it; what it served goes on",
    "status": "show whether it runs, and whether it goes on without a session; exits with 1 if it doesn't run",
    "remove": "stop and remove it; what it served goes on",
}
INSTALL = "show which Gateway API CRDs a cluster lacks, and install them with --yes"
PLUGIN = "put the provider where the Pulumi CLI finds it for every project of this user"
LIST = "list every stack that has a configuration or a state"
REMOVE = "remove the configuration, the state and the backups of a stack that serves nothing any more"
ADOPT = "move the stack to this user and state home: its proxies end there, and the next `up` starts them here"
CONFIG = {
    "list": "list the keys that are set, with their values and the files that have them",
    "get": "print the value of a key",
    "set": "set keys in the stack's file, which keeps all its other lines; a value is YAML",
    "unset": "remove keys from the stack's file",
}
SOURCE = {
    "list": "list the stack's sources",
    "add": "add sources: directories of manifests, clusters",
    "remove": "remove sources",
}
CHECK = "check the state against the rules that the Pulumi CLI enforces"
RESTORE = "go back to the last good state if the current one is unusable; nothing is lost"


def _add_yes(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("-y", "--yes", action="store_true", help="don't ask")


def _add_removal(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("-y", "--yes", action="store_true", help="remove this stack's part")


def _add_doing(command: argparse.ArgumentParser, text: str) -> None:
    """Add the option of a command that otherwise prints what it would do."""
    command.add_argument("-y", "--yes", dest="apply", action="store_true", help=text)
    command.add_argument("--apply", action=Renamed, const="--yes")


def _add_expectation(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("--expect-no-changes", action="store_true", help="exit with 7 if anything changes")


def _add_diff(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("--diff", action="store_true", help="show resources and files that change, in full")


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
    command.add_argument(
        "services", metavar="SERVICE", nargs="*", help="show these in detail; a part of a name, or a glob"
    )
    _add_pace(command, repeats=False)
    command.add_argument("-n", "--namespace", default="", help="only those of this namespace")
    command.add_argument("-A", "--all-namespaces", action="store_true", help="those of all namespaces (default)")
    command.add_argument("-l", "--selector", metavar="LABELS", default="", help="only those with them: app=web,!beta")
    command.add_argument(
        "--state", dest="states", choices=STATES, action="append", default=[], help="only those in it; may be repeated"
    )
    command.add_argument(
        "-o",
        "--output",
        metavar="FORM",
        type=_form,
        help="wide, json, yaml, name, or jsonpath={.items[*].name}",
    )
    command.add_argument("--traffic", action="store_true", help="show traffic through them, counted by their proxies")


def _add_pace(command: argparse.ArgumentParser, *, repeats: bool) -> None:
    """Add the two options that say whether a command goes on; one of them is what it does by itself."""
    both = command.add_mutually_exclusive_group()
    default = " (default)"
    both.add_argument(
        "-w",
        "--watch",
        dest="repeat",
        action="store_true",
        help=f"repeat until interrupted{default if repeats else ''}",
    )
    both.add_argument("--once", action="store_true", help=f"show it once{'' if repeats else default}")


def _form(text: str) -> str:
    if text not in FORMS and not text.startswith(JSONPATH):
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(FORMS)}, {JSONPATH}{{…}}")
    return text


def _add_open(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("services", metavar="SERVICE", nargs="*", help="which one; optional if there is only one")
    command.add_argument("--port", metavar="N", type=_port, default=0, help="which of its ports (default: the Web's)")
    command.add_argument("--print", dest="only_print", action="store_true", help="print the URL, open nothing")


def _add_page(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("--print", dest="only_print", action="store_true", help="print its address, open nothing")


def _add_wait(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("services", metavar="SERVICE", nargs="+", help="which ones; all of them are waited for")
    command.add_argument(
        "--for",
        dest="goal",
        choices=GOALS,
        default=GOALS[0],
        help="serving: every port answers; address: its proxy has its addresses; name: this host's resolver finds a"
        f" name of it there (default: {GOALS[0]})",
    )
    command.add_argument(
        "--timeout", dest="seconds", metavar="TIME", type=_time, default=60, help="such as 90s or 5m (default: 60s)"
    )


def _add_url(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("services", metavar="SERVICE", nargs="*", help="which one; optional if there is only one")
    command.add_argument("--port", metavar="N", type=_port, default=0, help="which of its ports (default: the Web's)")


def _add_curl(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.usage = "locallb curl [OPTIONS] SERVICE[/PATH] [-- CURL OPTIONS]"
    command.add_argument("services", metavar="SERVICE[/PATH]", nargs=1, help="which one, and the path of the request")
    command.add_argument("--port", metavar="N", type=_port, default=0, help="which of its ports (default: the Web's)")
    command.add_argument("--host", metavar="NAME", type=_host, help="the host that is asked for")


LIVE, MANIFESTS = "live", "manifests"
"""What `explain` goes by, besides a directory or a revision."""


def _add_explain(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("url", metavar="URL", help="such as http://shop.test:8080/cart, or shop.test/cart")
    command.add_argument(
        "-X", "--request", dest="method", metavar="METHOD", default="GET", help="its method (default: GET)"
    )
    command.add_argument(
        "-H",
        "--header",
        dest="headers",
        metavar="HEADER",
        action="append",
        default=[],
        help="a header, such as 'x-user: a'; repeatable",
    )
    command.add_argument(
        "--from",
        dest="side",
        metavar="SIDE",
        default=LIVE,
        help="live: the sources as they are, as `up` reads them on this host (default); manifests: the manifests alone,"
        " without a host or a state; otherwise a directory or a Git revision",
    )


def _host(text: str) -> str:
    from locallb.dns.zones import is_hostname, is_wildcard, name_fault  # noqa: PLC0415 - most commands need none

    if is_wildcard(text) or not is_hostname(text) or name_fault(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a host, such as shop.test")
    return text


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len("65535") and 0 < int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: use a number from 1 to 65535")
    return int(text)


def _add_top(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("services", metavar="SERVICE", nargs="*", help="only these; a name, its beginning, or a glob")
    _add_pace(command, repeats=True)
    command.add_argument(
        "--sort", choices=OVERRIDES, default=OVERRIDES[0], help=f"sort by this (default: {OVERRIDES[0]})"
    )


def _add_logs(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("services", metavar="SERVICE", nargs="*", help="only these; a name, its beginning, or a glob")
    command.add_argument("-f", "--follow", action="store_true", help="accepted, without effect")


def _add_shells(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("action", metavar="SHELL", choices=(*SHELLS, ANSWER), help=" or ".join(SHELLS))
    command.add_argument("services", nargs=argparse.REMAINDER, help=argparse.SUPPRESS).required = False


def _add_topic(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument(
        "topic", metavar="TOPIC", nargs="*", help="a page, a command or a reason: names, state check, InUse"
    )


def _add_stack_actions(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help=LIST, description=LIST, parents=[common])
    remove = actions.add_parser("rm", aliases=["remove"], help=REMOVE, description=REMOVE, parents=[common])
    remove.add_argument("removed", metavar="NAME", help="which stack")
    _add_yes(remove, common)


def _add_state_actions(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("check", help=CHECK, description=CHECK, parents=[common])
    restore = actions.add_parser("restore", help=RESTORE, description=RESTORE, parents=[common])
    _add_yes(restore, common)
    adopt = actions.add_parser("adopt", help=ADOPT, description=ADOPT, parents=[common])
    _add_yes(adopt, common)


def _add_configuration(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in CONFIG.items():
        action = actions.add_parser(name, help=text, description=text, parents=[common])
        if name == "set":
            action.add_argument("assignments", metavar="KEY VALUE", nargs="+", help="such as: metrics 127.0.0.1:9477")
        elif name != "list":
            action.add_argument("keys", metavar="KEY", nargs=1 if name == "get" else "+", help="such as metrics")


def _add_source_actions(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in SOURCE.items():
        aliases = ["rm"] if name == "remove" else []
        action = actions.add_parser(name, aliases=aliases, help=text, description=text, parents=[common])
        if name == "add":
            _add_sources(action, all_of_kind="?")
        elif name == "remove":
            action.add_argument("names", metavar="NAME", nargs="+", help="a name, its beginning, or a glob")


def _add_ending(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("--stop-watch", action="store_true", help="end a `watch` of the stack first")


def _add_report(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    formats = ("tree", "markdown", "json", "html", "github")
    command.add_argument("--format", choices=formats, default="tree", help="output format (default: tree)")
    command.add_argument(
        "--requests",
        metavar="FILE",
        type=Path,
        help="with --against: list which of the requests in FILE go elsewhere; a line each, such as `GET http://shop.test/`",
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


USUAL_PAGE = "usual"
"""Where the page is without an address: at its usual one, or at a free port where another program has that."""


def _add_watch(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    command.add_argument("--plain", action="store_true", help="print lines, also on a terminal (--json: JSON lines)")
    command.add_argument(
        "--all-services", action="store_true", help="serve Services of every type meanwhile, as local-lb:services would"
    )
    metrics, page = "127.0.0.1:9477", "127.0.0.1:9478"
    for option, usual, alone, what in (
        ("--metrics", metrics, metrics, "serve Prometheus metrics and health at a loopback address"),
        ("--page", page, USUAL_PAGE, "serve a live page at a loopback address, for browsers of this host"),
    ):
        instead = ", or a free port where that is taken" if alone != usual else ""
        command.add_argument(
            option,
            metavar="ADDR:PORT",
            nargs="?",
            const=alone,
            type=partial(_loopback, usual, alone),
            help=f"{what}; a port alone is of 127.0.0.1, without one it is {usual}{instead}",
        )


def _loopback(usual: str, alone: str, text: str) -> str:
    """Read a place on the loopback, or its port alone; `alone` is what stands for the option without any."""
    from locallb.config.values import loopback_place  # noqa: PLC0415 - most commands need none

    if text == alone:
        return text
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


def _add_service(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in SERVICE.items():
        action = actions.add_parser(name, help=text, description=text, parents=[common])
        if name == "install":
            _add_yes(action, common)


def _add_gateway(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    install = actions.add_parser("install-crds", help=INSTALL, description=INSTALL, parents=[common])
    install.add_argument(
        "--channel", choices=("standard", "experimental"), default="", help="default: the cluster's own"
    )
    install.add_argument("--context", metavar="CONTEXT", default="", help="the cluster (default: the current one)")
    install.add_argument("--kubeconfig", metavar="FILE", default="", help="the kubeconfig (default: kubectl's)")
    install.add_argument("-y", "--yes", action="store_true", help="do it")


def _add_plugin(command: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("install", help=PLUGIN, description=PLUGIN, parents=[common])


OPTIONS: tuple[tuple[frozenset[str], Callable[[argparse.ArgumentParser, argparse.ArgumentParser], None]], ...] = (
    (frozenset({"up", "destroy", "refresh", "watch"}), _add_yes),
    (frozenset({"gc"}), _add_removal),
    (frozenset({"up", "preview", "refresh"}), _add_expectation),
    (frozenset({"up", "preview"}), _add_diff),
    (frozenset({"up", "preview"}), _add_targets),
    (frozenset({"up"}), _add_demands),
    (frozenset({"preview"}), _add_report),
    (frozenset({"status"}), _add_services),
    (frozenset({"open"}), _add_open),
    (frozenset({"page"}), _add_page),
    (frozenset({"wait"}), _add_wait),
    (frozenset({"url"}), _add_url),
    (frozenset({"curl"}), _add_curl),
    (frozenset({"explain"}), _add_explain),
    (frozenset({"top"}), _add_top),
    (frozenset({"fault"}), add_fault),
    (frozenset({"drain"}), add_drain),
    (frozenset({"logs"}), _add_logs),
    (frozenset({"watch"}), _add_watch),
    (frozenset({"host"}), _add_actions),
    (frozenset({"state"}), _add_state_actions),
    (frozenset({"destroy"}), _add_ending),
    (frozenset({"stack"}), _add_stack_actions),
    (frozenset({"config"}), _add_configuration),
    (frozenset({"source"}), _add_source_actions),
    (frozenset({"ca"}), _add_ca),
    (frozenset({"gateway"}), _add_gateway),
    (frozenset({"service"}), _add_service),
    (frozenset({"init"}), add_place),
    (frozenset({"up", "preview", "watch"}), add_own_sources),
    (frozenset({"completion"}), _add_shells),
    (frozenset({"help"}), _add_topic),
    (frozenset({"image"}), _add_engine),
    (frozenset({"plugin"}), _add_plugin),
)
"""Options of each command in addition to the common options."""


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
    "wait": "wait until Services serve, have their address, or are found by name",
    "url": "print the URL of a Service, a Gateway or an Ingress",
    "curl": "send a request to one by curl, with host, address and authority filled in",
    "explain": "show which address, listener, rule and backends would answer a request, and why no other rule",
    "top": "show traffic through Services: connections, requests, failures, bytes and latencies",
    "fault": "make some connections or requests fail for a while, for tests; list faults, or end them",
    "drain": "keep new connections away from backends of a Service, or from all; list drains, or undo them",
    "logs": "print connections and requests as they end, one line each, until interrupted",
    "watch": "keep the stack in sync: follow its sources and proxies until stopped",
    "view": "show Services in this terminal, to filter, group, open and copy; quitting it stops nothing",
    "page": "open the live page of the `watch` that runs, in your browser",
    "service": "run `watch` of the stack as a service of your systemd",
    "gc": "list what a lost state left behind, and remove it on request",
    "image": "make an image of the installed Envoy, for the runtimes docker and podman without a registry",
    "doctor": "show what this host allows, what is in the way, and how to fix it",
    "host": "show or change what this host allows: ports, proxies, pools, a shared ledger",
    "state": "check, restore or move the stack's state",
    "gateway": "install the Gateway API CRDs that a cluster lacks",
    "plugin": "install the provider for the Pulumi CLI, for programs in any language",
    "ca": "show, create, trust and export your own authority for certificates",
    "stack": "list the project's stacks, or remove one",
    "source": "list the sources of a stack, add some or remove some",
    "config": "show keys of a stack's configuration, set or remove them",
    "init": "write the configuration of a new stack, named by --stack, and a project if there is none",
    "help": "show a page of the documentation, or the options of a command; list the pages",
    "completion": "print a script that completes commands, stacks and Services in your shell",
}


GET, DESCRIBE = "get", "describe"
ALIASES = {GET: "status", DESCRIBE: "status"}
"""Other names of commands, as kubectl has them; `describe` shows details."""


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
    commands: argparse._SubParsersAction[Any] = parser.add_subparsers(
        dest="command", metavar=COMMAND, required=True, parser_class=cast("type[Parser]", LateParser)
    )
    for name, text in COMMANDS.items():
        aliases = [alias for alias, of in ALIASES.items() if of == name]
        add = partial(_add_options, name, common)
        commands.add_parser(name, aliases=aliases, help=text, description=text, parents=[common], add=add)
    return parser


def _add_options(name: str, common: Parser, command: Parser) -> None:
    for names, add in OPTIONS:
        if name in names:
            add(command, common)


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
