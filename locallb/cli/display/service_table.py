"""The final table and its JSON: every Service with its addresses, ports, state and reason."""

from __future__ import annotations

from collections.abc import Sequence

from locallb.cli.console import Out
from locallb.cli.display.links import next_step
from locallb.model.formatting import few
from locallb.planning.planned import Via
from locallb.planning.status import PortRow, Row, State

MAX_SENTENCES = 20
MAX_NAMES = 2
_MAX_PORTS = 10
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
    sentences = list(dict.fromkeys(row.message for row in rows if row.message and printed.isdisjoint(as_reported(row))))
    if sentences:
        out.line("")
    for sentence in sentences[:MAX_SENTENCES]:
        out.line(("! ", "yellow"), sentence)
    if len(sentences) > MAX_SENTENCES:
        out.line(f"  and {len(sentences) - MAX_SENTENCES} more; `locallb status --json` has all")


def as_reported(row: Row) -> frozenset[str]:
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
            **({"refused": list(row.refused)} if row.refused else {}),
        }
        for row in rows
    ]


def _cells(row: Row, *, named: bool) -> Sequence[str | tuple[str, str]]:
    return (
        str(row.key),
        " ".join(str(address) for address in row.addresses) or "-",
        *([few(row.names, MAX_NAMES) or "-"] if named else []),
        _ports(row.ports),
        (str(row.state), STYLES[row.state]),
        " ".join(row.codes),
    )


def _ports(rows: Sequence[PortRow]) -> str:
    """Format the ports, of many only the first few, with ports that don't serve first."""
    if len(rows) > _MAX_PORTS:
        rows = sorted(rows, key=lambda row: row.state is State.SERVING)
    return few([_port(row) for row in rows], _MAX_PORTS, " ") or "-"


def _port(row: PortRow) -> str:
    if row.state is not State.SERVING:
        return f"{row.port.label}({row.state})"
    return f"{row.port.label}→pods" if row.via is Via.PODS else row.port.label
