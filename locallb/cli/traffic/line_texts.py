"""A line of a log as text and as JSON. Not here: where it comes from (`traffic.reading`)."""

from __future__ import annotations

from locallb.model.identities import ObjectKey
from locallb.traffic.lines import Line

_FAILED = 500


def line_text(key: ObjectKey, line: Line) -> tuple[str | tuple[str, str], ...]:
    """Write it for people, in parts, each a text or a text and its style."""
    port = line.listener.rpartition("/")[0].rpartition(":")[2]
    flowed = f"{line.received} B in, {line.sent} B out, {line.milliseconds} ms"
    why = " ".join(line.flags)
    request = f"{line.method} {line.host}{line.path} {line.status}  " if line.protocol else ""
    style = "red" if line.status >= _FAILED else ""
    place = f"{line.client} → {line.backend or 'nobody'}"
    begin, end = f"  {key}:{port}  {place}  ", f"  {why}" if why else ""
    return (line.time, "dim"), begin, (request, style), flowed, (end, "red")


def line_json(key: ObjectKey, line: Line) -> dict[str, object]:
    """Make the documented object."""
    request: dict[str, object] | None = None
    if line.protocol:
        names = {"protocol": line.protocol, "method": line.method, "host": line.host, "path": line.path}
        request = {**names, "status": line.status}
    return {
        "time": line.time,
        **key._asdict(),
        "listener": line.listener,
        "client": line.client,
        "backend": line.backend or None,
        "bytesIn": line.received,
        "bytesOut": line.sent,
        "milliseconds": line.milliseconds,
        "flags": list(line.flags),
        "request": request,
    }
