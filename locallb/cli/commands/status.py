"""The commands `status`, `open` and `page`: the state of Services, and their URLs in the user's browser.

`status` shows every Service, or named ones with all known details, once or until it is interrupted. `open` shows a
Service, a Gateway or an Ingress in the browser, or prints its URL; `page` the live page of a running `watch`.

Not here: tables, details and links (`cli.service_output`), and traffic (`cli.traffic`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused, sentence
from locallb.cli.process import exit_cleanly_when_interrupted
from locallb.cli.service_output import (
    Detail,
    PortLink,
    detail_json,
    details,
    field_parts,
    links,
    print_detail,
    print_services,
    services_json,
)
from locallb.cli.session import UNPLANNED, Session
from locallb.cli.targets import is_glob, matching, selected
from locallb.model.errors import ClientError
from locallb.model.identities import Protocol
from locallb.observe import inspect
from locallb.planning.planned import Plan
from locallb.planning.service_rows import Row
from locallb.runtimes.single_instance import holder
from locallb.sources.snapshot import SnapshotResult

if TYPE_CHECKING:
    from locallb.cli.leading import Leaders, LeaseHolder
    from locallb.cli.watching.published import Published


PACE = 1.0
"""Seconds between two looks of `--watch`."""


def status(session: Session, args: Arguments, out: Out) -> int:
    if args.traffic:
        from locallb.cli.traffic import top  # noqa: PLC0415 - only who wants to know

        return top(session, replace(args, once=not args.repeat, sort="name"), out)
    if args.repeat:
        exit_cleanly_when_interrupted()
        _repeat(session, args, out)
    leaders = _Leaders()
    leader = leaders.inspect(session, args)
    reading, plan = session.plan(glance=True)
    found = published(session)
    table = _rows(_explained(inspect(plan), found), reading, args)
    if leader.doubtful:  # a renewal in between shows at once
        leader = leaders.settled(session, args, out)
    if args.json or args.output:
        _print_form(table, _document(table, plan, args, leader, found), args, out)
    else:
        _print(table, plan, args, leader, out, found=found)
        _warn(found, out)
        _report_trust(session, out)
    printed = frozenset(row.message for row in table)
    for notice in (
        () if args.services or _is_part(args) or args.output not in _TABLES else (*reading.notices, *plan.notices)
    ):
        if args.json or notice not in printed:
            out.warning(notice)
    for complaint in reading.complaints:
        out.error(complaint)
    return Exit.FAILED if reading.complaints else Exit.OK


_TABLES = frozenset({"", "wide"})


def _is_part(args: Arguments) -> bool:
    """Return whether only some Services are asked for, without their names."""
    return bool(args.namespace or args.selector or args.states)


def _rows(table: tuple[Row, ...], reading: SnapshotResult, args: Arguments) -> tuple[Row, ...]:
    """Return the rows that are asked for. Raises Refused."""
    if not _is_part(args):
        return table
    from locallb.cli.selection import chosen_rows  # noqa: PLC0415 - few ask for a part

    return chosen_rows(table, {each.key: each.labels for each in reading.snapshot.services}, args)


def _print_form(table: tuple[Row, ...], document: list[dict[str, object]], args: Arguments, out: Out) -> None:
    """Print Services in the form that `-o` names, or as JSON."""
    if args.output in {"", "json"}:
        out.raw(json.dumps(document, indent=2))
    elif args.output == "name":
        for row in table:
            out.line(row.key.shown)
    elif args.output == "wide":
        print_services(out, table, wide=True)
    else:
        from locallb.cli.selection import in_form  # noqa: PLC0415 - loads YAML

        alone = len(args.services) == len(document) == 1 and not is_glob(args.services[0])
        out.document(in_form(document, args.output, alone=alone))


class _Leader(Struct, frozen=True):
    """The process that serves a stack which several may serve."""

    line: str = ""
    """A line for the user; empty for a stack without an election."""
    identity: str | None = None
    """The holder of the Lease, empty if there is none; None where that is unknown."""
    doubtful: bool = False
    """Whether it will be known in a few seconds."""


class _Leaders:
    """Finds the leader of the stack, where that is shown."""

    def __init__(self) -> None:
        self._existing: Leaders | None = None

    def inspect(self, session: Session, args: Arguments) -> _Leader:
        """Return what is known without waiting."""
        return self._reported(session, args, lambda leaders: leaders.inspect(session.settings, session.project.root))

    def settled(self, session: Session, args: Arguments, out: Out) -> _Leader:
        """Return the leader, even if finding it takes a few seconds."""
        root = session.project.root
        return self._reported(session, args, lambda leaders: leaders.settled(session.settings, root, out.warning))

    def _reported(self, session: Session, args: Arguments, ask: Callable[[Leaders], LeaseHolder]) -> _Leader:
        if session.election() is None or (args.services and not args.json):
            return _Leader()
        if self._existing is None:
            from locallb.cli.leading import Leaders  # noqa: PLC0415 - loads a client of Kubernetes

            self._existing = Leaders()
        try:
            return _leader(ask(self._existing))
        except ClientError as error:
            return _Leader(f"Leader: unknown: {sentence(error)}")


def _leader(holder: LeaseHolder) -> _Leader:
    if holder.doubtful:
        return _Leader(f"Leader: {holder.identity}, if it renews its Lease, which shows within seconds", doubtful=True)
    if holder.identity and holder.ran_out:
        return _Leader(f"Leader: nobody; the Lease of {holder.identity} ran out at {holder.ran_out}", "")
    return _Leader(f"Leader: {holder.identity or 'nobody holds the Lease'}", holder.identity)


def published(session: Session) -> Published | None:
    """Return what the stack's `watch` publishes; None if that is nothing."""
    if not session.published_file.exists():
        return None
    from locallb.cli.watching.published import read_published  # noqa: PLC0415 - only where there is something

    return read_published(session.published_file)


def _explained(table: tuple[Row, ...], found: Published | None) -> tuple[Row, ...]:
    return found.rows(table) if found else table


def _warn(found: Published | None, out: Out) -> None:
    for text in found.sentences(lambda since: f"for {max(0.0, time.time() - since):.0f} s") if found else ():
        out.warning(text)


def _report_trust(session: Session, out: Out) -> None:
    """Explain that nothing on this host trusts a stack's certificates."""
    if session.settings.local_certificates:
        from locallb.cli.commands.ca import is_believed  # noqa: PLC0415 - only who has such certificates

        if not is_believed():
            out.warning("no program of this host believes your certificates yet; `locallb ca trust` shows what helps")


def _document(
    table: tuple[Row, ...], plan: Plan, args: Arguments, leader: _Leader, found: Published | None
) -> list[dict[str, object]]:
    led = {} if leader.identity is None else {"leader": leader.identity}
    failing = found.fields() if found else {}
    if not args.services:
        rows = zip(table, services_json(table), strict=True)
        return [{**fields, **led, **failing.get(row.key, {})} for row, fields in rows]
    return [
        {**fields, **led, **failing.get(detail.row.key, {}), **detail_json(detail)}
        for detail in _chosen(table, plan, args)
        for fields in services_json([detail.row])
    ]


def _print(  # noqa: PLR0913 - all that may be printed
    table: tuple[Row, ...], plan: Plan, args: Arguments, leader: _Leader, out: Out, *, found: Published | None
) -> None:
    if not args.services:
        left_out = plan.left_out
        if _is_part(args):
            left_out = () if table else ("No load balancer is so; `locallb status` shows all.",)
        print_services(out, table, left_out=(*left_out, *filter(None, (leader.line,))))
    for number, detail in enumerate(_chosen(table, plan, args)):
        if number:
            out.line("")
        print_detail(out, detail)
        if times := found.times(detail.row.key) if found else "":
            out.line(*field_parts("failing", times))


def _chosen(table: tuple[Row, ...], plan: Plan, args: Arguments) -> list[Detail]:
    """Return the Services that were asked for. Raises TargetError if a name matches none or several."""
    names = sorted({str(row.key) for row in table})
    wanted = {*selected(args.services, names)}
    return details([row for row in table if str(row.key) in wanted], plan)


def _repeat(session: Session, args: Arguments, out: Out) -> None:
    """Show them for ever: drawn again on a terminal that can do that, elsewhere whenever something is different."""
    retry = out.redraws and not args.json
    before: object = None
    leaders = _Leaders()
    while not out.removed:
        document: object
        try:
            reading = Session(session.project, session.stack)
            read, plan = reading.plan(glance=True)
            found = published(reading)
            table, leader = _rows(_explained(inspect(plan), found), read, args), leaders.inspect(reading, args)
            document = _document(table, plan, args, leader, found)
        except UNPLANNED as error:
            document = sentence(error)
        if retry or _without_retries(document) != _without_retries(before):
            if retry:
                out.console.clear()
            if isinstance(document, str):
                out.error(document)
            elif args.json:
                out.raw(json.dumps(document))
            else:
                _print(table, plan, args, leader, out, found=found)
                _warn(found, out)
        before = document
        time.sleep(PACE)


def _without_retries(document: object) -> object:
    """Return what is compared: another attempt that failed for the same reason is no news."""
    if not isinstance(document, list):
        return document
    return [
        {name: value.get("since") if name == "failing" else value for name, value in row.items()} for row in document
    ]


_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_SUDO = "SUDO_UID"


def open_address(session: Session, args: Arguments, out: Out) -> int:
    """Open the named Service, or the only one; list them where the choice isn't clear."""
    reading, plan = session.plan(glance=True)
    for complaint in reading.complaints:
        out.error(complaint)
    table = inspect(plan)
    planned = {placement.key: placement.ports for placement in plan.placements}
    rows = _chosen_ports(table, args)
    links_by_key = {row.key: links_of_port(links(row, planned.get(row.key, ())), args.port) for row in rows}
    first = [of_one[0] for of_one in links_by_key.values() if of_one]
    if not first:
        raise Refused(why_none(rows, args.port))
    if args.json:
        out.raw(
            json.dumps([{**link.key._asdict(), "port": link.port.port, "url": link.url} for link in first], indent=2)
        )
        return Exit.OK
    if len(first) > 1:
        out.table(("SERVICE", "URL"), [(str(link.key), link.url) for link in first])
        raise Refused(f"there are {len(first)} that can be opened; name one: `locallb open {first[0].key}`")
    return _open(first[0], args, out)


def _chosen_ports(table: Sequence[Row], args: Arguments) -> list[Row]:
    """Return the row that is named, or all. Raises TargetError if a name matches none or several."""
    names = sorted({str(row.key) for row in table})
    wanted = {matching(name, names) for name in args.services}
    return [row for row in table if not wanted or str(row.key) in wanted]


def links_of_port(candidates: Sequence[PortLink], number: int) -> list[PortLink]:
    """Return those of one port, by the Service's own number or the mapped one; all where none is asked for."""
    own = [link for link in candidates if number in {0, link.port.port}]
    return own or [link for link in candidates if link.port.number == number]


def why_none(rows: Sequence[Row], number: int) -> str:
    """Explain why nothing can be opened, and what helps."""
    if len(rows) != 1:
        what = f"nothing serves port {number} of TCP now" if number else "nothing serves TCP now"
        return f"{what}; `locallb status` says why, `locallb up` serves what is planned"
    (row,) = rows
    ports = [port for port in row.ports if port.port.protocol is Protocol.TCP]
    requested = [port for port in ports if number in {0, port.port.port, port.port.number}]
    if row.ports and not ports:
        return f"{row.key} has no port of TCP, and browsers need one; `locallb status {row.key}` tells its ports"
    if ports and not requested:
        numbers = ", ".join(str(port.port.port) for port in ports)
        return f"{row.key} has no port {number} of TCP; name one with --port: {numbers}"
    why = next((port.message for port in requested if port.message), "") or row.message
    if why:  # with the key, and what helps
        return f"it can't be opened yet: {why}"
    return f"{row.key} has no address that serves yet; `locallb status {row.key}` tells more"


def _open(link: PortLink, args: Arguments, out: Out) -> Exit:
    out.line(link.url)
    if not args.only_print and (why := show_in_browser(link)):
        out.warning(why)
    return Exit.OK


def open_page(session: Session, args: Arguments, out: Out) -> int:
    """Open the live page of the `watch` that runs. Raises Refused where there is none."""
    found = published(session)
    url = found.page if found else ""
    if not url:
        if process := holder(session.watch_lock):
            what = f"the `watch` of stack {session.stack} (pid {process.pid}) has no page: start it with --page instead"
        else:
            what = f"no `watch` of stack {session.stack} runs here: start `locallb watch --page`"
        raise Refused(f"{what}, or set local-lb:page")
    if args.json:
        out.raw(json.dumps({"stack": session.stack, "url": url}, indent=2))
        return Exit.OK
    out.line(url)
    if not args.only_print and (why := _shown(url)):
        out.warning(why)
    return Exit.OK


def show_in_browser(link: PortLink) -> str:
    """Open a link in the user's browser; return why none was started. Raises Refused if none could be."""
    if not link.scheme:
        return (
            f"no browser was started: nothing says that port {link.port} of {link.key} speaks HTTP; if it does, name"
            " it http or https in the Service, or give it that appProtocol"
        )
    return _shown(link.url)


def _shown(url: str) -> str:
    """Open a URL in the user's browser; return why none was started. Raises Refused if none could be."""
    if why := _obstacle():
        return f"no browser was started: {why}"
    if not _show(url):
        raise Refused("no browser could be started; open the URL yourself, or name a browser in BROWSER")
    return ""


def _obstacle() -> str:
    """Return why no browser is started here; empty where one may be."""
    if os.geteuid() == 0 and _SUDO in os.environ:
        return "root's browser under sudo would not be yours; open it yourself, or run it without sudo"
    if not all(map(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep))):
        return "PATH has a directory that isn't absolute, from which anybody's program may be run; open it yourself"
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in _DISPLAYS):
        return "there is no display here; open it where there is one, or name a browser in BROWSER"
    return ""


def _show(url: str) -> bool:
    """Open a URL that `service_output.links` made in the user's browser; return whether one was started.

    The standard library chooses the browser and starts it without a shell; the browser outlives this process.
    """
    import webbrowser  # noqa: PLC0415 - `status` opens none

    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
