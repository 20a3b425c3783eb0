"""The command `open`: shows a Service, a Gateway or an Ingress in the user's browser, or prints its URL.

The standard library chooses the browser and starts it without a shell; it outlives us.
"""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from collections.abc import Sequence

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.display.links import Link, links
from locallb.cli.exit_code import Exit
from locallb.cli.failures import Refused
from locallb.cli.observe import inspect
from locallb.cli.session import Session
from locallb.cli.targets import matching
from locallb.model.identities import Protocol
from locallb.planning.status import Row

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_SUDO = "SUDO_UID"


def open_address(session: Session, args: Arguments, out: Out) -> int:
    """Open the named Service, or the only one; list them where the choice isn't clear."""
    reading, plan = session.plan(glance=True)
    for complaint in reading.complaints:
        out.error(complaint)
    table = inspect(plan)
    planned = {placement.key: placement.ports for placement in plan.placements}
    rows = _chosen(table, args)
    links_by_key = {row.key: _of_port(links(row, planned.get(row.key, ())), args.port) for row in rows}
    first = [of_one[0] for of_one in links_by_key.values() if of_one]
    if not first:
        raise Refused(_why_none(rows, args.port))
    if args.json:
        out.raw(
            json.dumps([{**link.key._asdict(), "port": link.port.port, "url": link.url} for link in first], indent=2)
        )
        return Exit.OK
    if len(first) > 1:
        out.table(("SERVICE", "URL"), [(str(link.key), link.url) for link in first])
        raise Refused(f"there are {len(first)} that can be opened; name one: `locallb open {first[0].key}`")
    return _open(first[0], args, out)


def _chosen(table: Sequence[Row], args: Arguments) -> list[Row]:
    """Return the row that is named, or all. Raises TargetError if a name matches none or several."""
    names = sorted({str(row.key) for row in table})
    wanted = {matching(name, names) for name in args.services}
    return [row for row in table if not wanted or str(row.key) in wanted]


def _of_port(candidates: Sequence[Link], number: int) -> list[Link]:
    """Return those of one port, by the Service's own number or the mapped one; all where none is asked for."""
    own = [link for link in candidates if number in {0, link.port.port}]
    return own or [link for link in candidates if link.port.number == number]


def _why_none(rows: Sequence[Row], number: int) -> str:
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


def _open(link: Link, args: Arguments, out: Out) -> Exit:
    out.line(link.url)
    if args.only_print:
        return Exit.OK
    if why := _obstacle(link):
        out.warning(f"no browser was started: {why}")
    elif not _show(link.url):
        raise Refused("no browser could be started; open the URL yourself, or name a browser in BROWSER")
    return Exit.OK


def _obstacle(link: Link) -> str:
    """Return why no browser is started here for a link; empty where one may be."""
    if not link.scheme:
        return (
            f"nothing says that port {link.port} of {link.key} speaks HTTP; if it does, name it http or https in the"
            " Service, or give it that appProtocol"
        )
    if os.geteuid() == 0 and _SUDO in os.environ:
        return "root's browser under sudo would not be yours; open it yourself, or run it without sudo"
    if not all(map(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep))):
        return "PATH has a directory that isn't absolute, from which anybody's program may be run; open it yourself"
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in _DISPLAYS):
        return "there is no display here; open it where there is one, or name a browser in BROWSER"
    return ""


def _show(url: str) -> bool:
    """Open a URL that `display.links` made in the user's browser; return whether one was started."""
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
