"""All that is known of one Service: its addresses, ports, proxy and backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from locallb.cli.console import Out
from locallb.cli.display.service_table import STYLES
from locallb.model.identities import UpstreamName
from locallb.model.serving import Proxy, Upstream
from locallb.planning.planned import Placement, Plan, PlannedPort, PlannedProxy, Via
from locallb.planning.status import Row
from locallb.storage.proxy_directories import Proxies

_LABEL = 11


class Detail(Struct, frozen=True):
    """A Service's row, its proxy, and by port where its connections go; both empty for one that gets nothing."""

    row: Row
    proxy: Proxy | None = None
    backends: Mapping[str, tuple[str, ...]] | None = None
    routes: tuple[str, ...] = ()
    """Of a Gateway, a line each."""
    container: str = ""
    """The name of the proxy's container; empty for a process."""

    @property
    def pid(self) -> int | None:
        """The process that was started for the proxy last; None for a container, or before the first."""
        record = Proxies.ours().recorded(self.proxy.id) if self.proxy else None
        return record.pid if record else None

    @property
    def directory(self) -> str:
        """The directory with the proxy's configuration and log; empty without a proxy."""
        return str(Proxies.ours().path(self.proxy.id)) if self.proxy else ""


def details(rows: Sequence[Row], plan: Plan) -> list[Detail]:
    """Add to each row what the plan has of it."""
    placements = {placement.key: placement for placement in plan.placements}
    proxies = {planned.proxy.name: planned for planned in plan.proxies}
    return [
        _detail(row, placed, proxies[placed.proxy])
        if (placed := placements.get(row.key)) and row.addresses
        else Detail(row)
        for row in rows
    ]


def _detail(row: Row, placed: Placement, planned: PlannedProxy) -> Detail:
    return Detail(row, planned.proxy, _backends(placed, planned.proxy), placed.routes, planned.run.container)


def detail_json(detail: Detail) -> dict[str, object]:
    """Make the documented fields of a Service in addition to those of its row."""
    proxy = detail.proxy
    return {
        "proxy": {"name": proxy.name, "id": proxy.id, "directory": detail.directory, "pid": detail.pid}
        if proxy
        else None,
        "backends": [
            {"port": port, "addresses": list(places)} for port, places in sorted((detail.backends or {}).items())
        ],
        **({"routes": list(detail.routes)} if detail.routes else {}),
    }


def print_detail(out: Out, detail: Detail) -> None:
    """Print it, a line for each thing."""
    row, proxy = detail.row, detail.proxy
    out.line((str(row.key), "bold"), "  ", (str(row.state), STYLES[row.state]), f"  {row.reason}".rstrip())
    _field(out, "addresses", " ".join(map(str, row.addresses)) or "-")
    if row.names:
        _field(out, "names", " ".join(row.names))
    for port in row.ports:
        backends = ", ".join((detail.backends or {}).get(str(port.port), ())) or "no backends"
        way = {Via.PODS: "pods ", Via.BOTH: "pods and nodePorts "}.get(port.via, "") if port.via else ""
        _field(out, "port", f"{port.port.label}  {port.state}  {port.reason}".rstrip(), f" → {way}{backends}")
        if port.message and port.message != row.message:
            _field(out, "", port.message)
    for number, route in enumerate(detail.routes):
        _field(out, "" if number else "routes", route)
    if proxy:
        running = f"pid {detail.pid}" if detail.pid else "no process of this host"
        if detail.container:
            running = f"container {detail.container}"
        _field(out, "proxy", f"{proxy.name}  {running}")
        _field(out, "files", detail.directory)
    sentences = (row.message, *(notice.message for notice in row.notices))
    for sentence in filter(None, dict.fromkeys(sentences)):
        out.line(("! ", "yellow"), sentence)


def _field(out: Out, label: str, *parts: str) -> None:
    out.line("  ", (f"{label:<{_LABEL}}", "dim"), *parts)


def _backends(placed: Placement, proxy: Proxy) -> Mapping[str, tuple[str, ...]]:
    source = placed.part.part if placed.part else proxy
    upstreams = {upstream.name: upstream for upstream in source.upstreams}
    return {str(planned.port): _of_port(planned, upstreams) for planned in placed.ports}


def _of_port(planned: PlannedPort, upstreams: Mapping[UpstreamName, Upstream]) -> tuple[str, ...]:
    behind = [backend for name in planned.upstreams if name in upstreams for backend in upstreams[name].backends]
    return tuple(dict.fromkeys(map(str, behind)))
