"""The final table and its JSON: every Service with its addresses, ports, state and reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from locallb.cli.console import Out
from locallb.dns.names import is_wildcard
from locallb.host.setup.hosts_file import HOSTS, tells
from locallb.host.setup.resolver_plan import routing_files
from locallb.model.formatting import few
from locallb.model.identities import ROUTED, Protocol, place
from locallb.model.objects import ServicePort
from locallb.planning.planned import Via
from locallb.planning.status import PortRow, Row, State
from locallb.storage import files

MOST_SENTENCES = 20
MOST_NAMES = 2
_PORTS = {"http": 80, "https": 443}
STYLES = {State.SERVING: "green", State.DEGRADED: "yellow", State.PENDING: "yellow", State.REJECTED: "red"}


def print_services(
    out: Out, rows: Sequence[Row], printed: frozenset[str] = frozenset(), left_out: Sequence[str] = ()
) -> None:
    """Print the table, below it the sentences behind the reasons that weren't `printed`, and what to try next.

    `left_out` are sentences about what isn't in the table, which are all there is to say of an empty one.
    """
    if rows:
        _print_table(out, rows, printed)
    for sentence in left_out:
        out.line(sentence)
    if hint := next_step(rows):
        out.line("")
        out.line("Try: ", (hint, "bold"))


def _print_table(out: Out, rows: Sequence[Row], printed: frozenset[str]) -> None:
    named = any(row.names for row in rows)
    head = ("SERVICE", "ADDRESS", *(["NAMES"] if named else []), "PORTS", "STATE", "REASON")
    out.table(head, [_cells(row, named=named) for row in rows])
    sentences = list(dict.fromkeys(row.message for row in rows if row.message and printed.isdisjoint(as_told(row))))
    if sentences:
        out.line("")
    for sentence in sentences[:MOST_SENTENCES]:
        out.line(("! ", "yellow"), sentence)
    if len(sentences) > MOST_SENTENCES:
        out.line(f"  and {len(sentences) - MOST_SENTENCES} more; `locallb status --json` has all")


def as_told(row: Row) -> frozenset[str]:
    """Return the forms in which a Service's problem is printed: in the table, and as a warning of the program."""
    return frozenset({row.message, f"{row.reason}: {row.message}"})


def services_json(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Make the documented list of objects."""
    return [
        {
            **row.key._asdict(),
            "state": str(row.state),
            "addresses": [str(address) for address in row.addresses],
            "ports": [
                {
                    "port": port.port.port,
                    "protocol": str(port.port.protocol),
                    **({"mapped": port.port.mapped} if port.port.mapped else {}),
                    "state": str(port.state),
                    "via": str(port.via or ""),
                    "reason": port.reason,
                    "message": port.message,
                }
                for port in row.ports
            ],
            "reason": row.reason,
            "message": row.message,
            **({"names": list(row.names)} if row.names else {}),
            **({"ordered": [{"reason": n.reason, "message": n.message} for n in row.ordered]} if row.ordered else {}),
        }
        for row in rows
    ]


def _cells(row: Row, *, named: bool) -> Sequence[str | tuple[str, str]]:
    return (
        str(row.key),
        " ".join(str(address) for address in row.addresses) or "-",
        *([few(row.names, MOST_NAMES) or "-"] if named else []),
        " ".join(_port(port) for port in row.ports) or "-",
        (str(row.state), STYLES[row.state]),
        " ".join(filter(None, (row.reason, *(notice.reason for notice in row.ordered)))),
    )


def _port(row: PortRow) -> str:
    if row.state is not State.SERVING:
        return f"{row.port.label}({row.state})"
    return f"{row.port.label}→pods" if row.via is Via.PODS else row.port.label


def next_step(rows: Sequence[Row]) -> str:
    """Suggest what to try: a name that this host's resolver knows, or the first address that serves TCP.

    What routes answer at an address, they say themselves.
    """
    for row in sorted(rows, key=lambda row: row.key.kind in ROUTED):
        for port_row in row.ports:
            if port_row.state is State.SERVING and port_row.port.protocol is Protocol.TCP:
                if name := next((name for name in row.names if is_routed(name)), ""):
                    return _link(name, port_row.port)
                if row.key.kind in ROUTED:
                    return f"`locallb status {row.key}`"
                scheme = _scheme(port_row.port)
                insecurely = "-k " if scheme == "https" else ""  # no certificate has an address
                return f"curl {insecurely}{scheme}://{place(row.addresses[0], port_row.port.number)}/"
    return ""


def is_routed(name: str) -> bool:
    """Return whether `host setup` has this host's resolver ask for a name; wildcards can't be asked for."""
    return not is_wildcard(name) and (any(Path(path).exists() for path in routing_files(name)) or _is_in_hosts(name))


def _is_in_hosts(name: str) -> bool:
    """Return whether `host setup` has written a name into /etc/hosts."""
    try:
        return tells(files.read(Path(HOSTS)) or "", name)
    except files.FilesError:
        return False


def _link(name: str, port: ServicePort) -> str:
    """Write a link as browsers have it."""
    scheme = _scheme(port)
    return f"{scheme}://{name}/" if port.number == _PORTS[scheme] else f"{scheme}://{name}:{port.number}/"


def _scheme(port: ServicePort) -> str:
    """Return the scheme, by the Service's own port, whatever port clients use."""
    return "https" if port.port == _PORTS["https"] else "http"
