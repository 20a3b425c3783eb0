"""What the user may type."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from msgspec import Struct

from locallb.cli.grammar import ALIASES, DESCRIBE, LIVE, make_parser
from locallb.cli.parser import Misunderstood
from locallb.model.faults import WHOLE, RequestDelay, RequestFailure
from locallb.model.identities import ContextName, IPNetwork

END, CURL = "--", "curl"
"""The end of our own options, before those of the program that `curl` runs."""


class Arguments(Struct, frozen=True):
    """A parsed command line."""

    command: str
    directory: Path
    stack: str
    json: bool = False
    yes: bool = False
    expect_no_changes: bool = False
    named: bool = False
    """Whether `directory` was given, as is done on purpose."""
    diff: bool = False
    """Show resources, and what changes of each."""
    targets: tuple[str, ...] = ()
    """Load balancers to restrict an update to; empty means all."""
    action: str = ""
    """The word after `host`, `state`, `stack`, `config` and others that have several."""
    topic: tuple[str, ...] = ()
    """What `help` is about: a page, or the words of a command; empty for the list of pages."""
    removed: str = ""
    """The stack that `stack rm` names: `stack` is the same."""
    keys: tuple[str, ...] = ()
    """Of the configuration, for `config get` and `unset`."""
    assignments: tuple[str, ...] = ()
    """Keys that `config set` sets, each before its value."""
    names: tuple[str, ...] = ()
    """Of sources that `source remove` removes."""
    apply: bool = False
    persist: bool = False
    group: str = ""
    allow_zone: tuple[str, ...] = ()
    """What `host setup` may do besides: for these zones, with these networks, on behalf of these users."""
    allow_network: tuple[IPNetwork, ...] = ()
    on_behalf_of: tuple[str, ...] = ()
    format: str = "tree"
    """The format of `preview`: tree, markdown, json, html or github."""
    against: str | None = None
    """A directory or a revision that `preview` compares with; None for the stack's state."""
    from_pulumi: Path | None = None
    """What `pulumi preview --json` printed, for `preview` to tell."""
    requests: Path | None = None
    """A file of requests: `preview` reports which of them go elsewhere."""
    url: str = ""
    """Of the request that `explain` explains, with its method and headers."""
    method: str = ""
    headers: tuple[str, ...] = ()
    side: str = LIVE
    """What it goes by: `live`, `manifests`, a directory or a revision."""
    plain: bool = False
    """`watch` prints lines even on a terminal."""
    all_services: bool = False
    """`watch` serves Services of every type, whatever the configuration says."""
    stop_watch: bool = False
    """`destroy` ends a `watch` of the stack first."""
    metrics: str = ""
    """Where `watch` serves metrics and health: a loopback address and a port; empty as the configuration says."""
    page: str = ""
    """Where `watch` shows its live page, likewise."""

    fail_on: tuple[str, ...] = ()
    """States of Services with which `up` ends badly."""

    namespace: str = ""
    """The namespace of the Services that `status` shows; empty for all."""
    selector: str = ""
    """The labels that they have, as kubectl writes them."""
    states: tuple[str, ...] = ()
    """The states that they are in; empty for all."""
    output: str = ""
    """The form in which `status` shows them, as kubectl names it; empty for the table, or for details."""

    services: tuple[str, ...] = ()
    """Services that `status` tells all about, none for a table of all; for `completion` the words at the cursor."""
    repeat: bool = False
    """`status` goes on until it is interrupted."""
    traffic: bool = False
    """`status` tells what flows."""
    port: int = 0
    """Which port `open` is about; 0 for the one that suits a browser."""
    only_print: bool = False
    """`open` prints the URL, and opens nothing."""
    once: bool = False
    """`top` and `status` show it once."""
    sort: str = ""
    """What `top` sorts by."""
    runtime: str = ""
    """Where `image` makes one."""
    refuse: int = 0
    """Which share of connections `fault` orders to be refused, in hundredths of a percent; `hang` and `reset` alike."""
    hang: int = 0
    reset: int = 0
    delay: RequestDelay | None = None
    """How `fault` orders requests to be delayed, and which share of them; `status` alike, what they are answered."""
    status: RequestFailure | None = None
    seconds: int = 0
    """For how long."""
    ends: bool = False
    """`fault` ends what was ordered."""
    backends: tuple[str, ...] = ()
    """Which ones `drain` and `fault --down` are about; none for all."""
    down: bool = False
    """`fault` has these count as if they refused."""
    undo: bool = False
    """`drain` lets them have new connections again."""
    place: Path | None = None
    """Project that `init` creates, None for the surrounding one; file that `ca export` writes."""
    sources: tuple[tuple[str, object], ...] = ()
    """What is written down as the sources of a new stack."""

    goal: str = ""
    """What `wait` waits for; `seconds` at most."""
    host: str = ""
    """The host of the request of `curl`; empty for the one that is served."""
    options: tuple[str, ...] = ()
    """What `curl` passes on."""

    domains: tuple[str, ...] = ()
    """Below which hosts lie that a new authority certifies besides the reserved ones."""
    replaces: bool = False
    """A new authority comes in place of one that there is."""

    channel: str = ""
    """Of which channel the definitions are that `gateway install-crds` installs; empty for the one that is there."""
    context: ContextName = ContextName("")
    """In which cluster, by its context; empty for the current one."""
    kubeconfig: str = ""

    @property
    def offline(self) -> bool:
        """Whether a preview, or an explanation, needs neither the stack's state nor a host."""
        return self.against is not None or self.from_pulumi is not None or self.side != LIVE


def parse(terms: Sequence[str] | None = None) -> Arguments:
    """Parse a command line. Raises Misunderstood."""
    own, options = _split(sys.argv[1:] if terms is None else terms)
    try:
        return _parsed(terms, own, options)
    except Misunderstood as error:
        error.json = "--json" in takewhile(END.__ne__, own)
        raise


def _parsed(terms: Sequence[str] | None, own: Sequence[str], options: tuple[str, ...]) -> Arguments:
    parser = make_parser()
    given = parser.take(own)
    if options and given.command != CURL:  # a value of another option was called so
        given, options = parser.take(terms), ()
    if getattr(given, "place", None) is not None and given.command != "ca":
        given.directory = given.place
    given.command = ALIASES.get(invoked := given.command, invoked)
    if invoked == DESCRIBE:
        given.services = given.services or ["*"]
    given.json = given.json or getattr(given, "output", None) == "json"
    if problem := _contradiction(given, parser.get_default("stack")):
        parser.error(problem, given.command)
    given.stack = vars(given).get("removed", given.stack)
    if given.command == "source":
        given.action = {"rm": "remove"}.get(given.action, given.action)
    values = {name: value for name, value in vars(given).items() if value is not None and name in _FIELDS}
    values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    values |= {"directory": given.directory or Path(), "named": given.directory is not None, "options": options}
    return Arguments(**values)


_FIELDS = frozenset(Arguments.__struct_fields__)


def _split(terms: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Split a command line of `curl` into its own terms and, after `--`, those of the program."""
    own = list(terms)
    if END not in own or CURL not in own[: own.index(END)]:
        return own, ()
    return own[: own.index(END)], tuple(own[own.index(END) + 1 :])


def _contradiction(given: argparse.Namespace, default_stack: str) -> str:
    """Return which words exclude each other; empty if none do."""
    value_of = vars(given).get
    is_report = (
        value_of("format", "tree") != "tree" or value_of("against") is not None or value_of("from_pulumi") is not None
    )
    found = {
        "name the SERVICE whose backend it is": given.command == "drain" and given.backends and not given.services,
        "name one SERVICE: a browser or a script gets one at a time": given.command in {"open", "url"}
        and len(given.services) > 1,
        "-o shows once what is served; for traffic, or to repeat it, say --json": value_of("output")
        and (given.traffic or given.repeat),
        "--json is the run itself, of the stack's state; for the report say --format json alone": is_report
        and given.json,
        "--requests FILE compares two sides of manifests: say --against DIR|REV as well": value_of("requests")
        and value_of("against") is None,
        "each KEY has a VALUE behind it; one with blanks is in quotes": len(value_of("assignments") or ()) % 2,
        "name a source: --manifests PATH, --context NAME or --kind [CLUSTER]": (given.command, value_of("action"))
        == ("source", "add")
        and not given.sources,
        "a report is of the whole stack; leave out --target": is_report and given.targets,
        f"`stack rm` removes the stack that it names; leave out --stack {given.stack}": value_of("removed")
        and given.stack not in {default_stack, given.removed},
    }
    if given.command == "fault":
        return _contradiction_of_fault(given)
    return next((sentence for sentence, is_so in found.items() if is_so), "")


def _contradiction_of_fault(given: argparse.Namespace) -> str:
    """Return what of a fault can't be."""
    whole = given.refuse + given.hang + given.reset
    anything = whole or given.delay or given.status
    if (anything or given.down) and given.ends:
        return "--undo takes no shares, and no --down"
    if given.down != bool(given.backends) and not given.ends:
        return "--backend NAME and --down belong together: which backends count as if they refused"
    if (anything or given.backends) and not given.services:
        return "name the SERVICE whose connections shall fail"
    return "shares are together at most 100%" if whole > WHOLE else ""
