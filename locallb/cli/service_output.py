"""The output about Services: the table and its JSON, the details of one Service, and links to its ports.

The table has every Service with its addresses, ports, state and reason; the details add its proxy and backends. A link
is a URL for a browser, or an address and its port where the port isn't known to speak HTTP. A cluster chooses names of
Services and hostnames; so each part of a link that it decides is a number, an address that was parsed, or a name of
letters, digits, hyphens and dots.

Not here: opening links (`commands.status`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from locallb.cli.console import Out
from locallb.dns.zones import is_hostname, is_wildcard, name_fault
from locallb.host.resolvers import HOSTS, applies_to, routing_files
from locallb.model.identities import LOCALHOST, ROUTED, ObjectKey, Protocol
from locallb.model.objects import ServicePort, Via
from locallb.model.reasons import section
from locallb.model.serving import Proxy
from locallb.model.texts import few
from locallb.planning.entrances import scheme_of, url, url_host
from locallb.planning.planned import Placement, Plan, PlannedPort, PlannedProxy
from locallb.planning.service_rows import Cause, PortRow, Row, State, causes, grouped
from locallb.storage import files
from locallb.storage.proxy_directories import Proxies


class PortLink(Struct, frozen=True):
    """Where a port is found."""

    key: ObjectKey
    port: ServicePort
    scheme: str
    """`http` or `https`; empty where it isn't known to speak HTTP."""
    url: str
    """Without a scheme an address, or a name, and a port."""
    is_local: bool = False
    """Whether its name is one below `localhost`."""


def links(row: Row, planned: tuple[PlannedPort, ...] = ()) -> tuple[PortLink, ...]:
    """Return a link for each serving TCP port, HTTP ports first; by a name below `localhost` where there is one."""
    local = {each.port: each.url for each in reversed(row.local_urls)}
    by_port = {(port.port.port, port.port.protocol): port for port in planned}
    host = (_name(row) or url_host(row.addresses[0])) if row.addresses else ""
    serving = [port.port for port in row.ports if _is_found(port, local) and port.port.protocol is Protocol.TCP]
    serving = serving or [ServicePort(number) for number in local if not row.addresses]
    made = []
    for port in serving:
        if at := local.get(port.port, ""):
            made.append(PortLink(row.key, port, at.partition(":")[0], at, is_local=True))
        else:
            scheme = scheme_of(port, by_port.get((port.port, port.protocol)))
            made.append(PortLink(row.key, port, scheme, url(scheme, host, port.number)))
    return tuple(sorted(made, key=lambda link: not link.scheme))


def _is_found(port: PortRow, local: Collection[int]) -> bool:
    """Return whether a port serves, or only by its name: it may not be bound at its address."""
    return port.state is State.SERVING or (port.state is State.REJECTED and port.port.port in local)


def next_step(rows: Sequence[Row]) -> str:
    """Suggest what to try: a Service that serves at all its ports and speaks HTTP, else what comes closest.

    What routes answer at an address, they say themselves.
    """
    if not (candidate := _closest(rows)):
        return ""
    row, link = candidate
    name = link.is_local or _name(row)
    if row.key.kind in ROUTED and not (name and link.scheme):
        return f"`locallb status {row.key.shown}`"
    if name or not link.scheme:
        return link.url
    return f"curl {'-k ' if link.scheme == 'https' else ''}{link.url}"  # no certificate has an address


def _closest(rows: Iterable[Row]) -> tuple[Row, PortLink] | None:
    """Return what is worth a try most, with its first link; those after the first that is best aren't looked at."""
    closest, least = None, (True, True, True)
    for row in rows:
        if row.key != LOCALHOST and (found := links(row)):
            distance = _distance(row, found[0])
            if closest is None or distance < least:
                closest, least = (row, found[0]), distance
            if not any(distance):
                break
    return closest


def _distance(row: Row, link: PortLink) -> tuple[bool, bool, bool]:
    """Return how far something is from a Service that is worth a try: the smallest is the best."""
    is_routed_kind = row.key.kind in ROUTED
    return row.state is not State.SERVING, not (is_routed_kind or link.scheme), is_routed_kind and not link.is_local


def is_routed(name: str) -> bool:
    """Return whether `host setup` has this host's resolver ask for a name; wildcards can't be asked for."""
    return not is_wildcard(name) and (any(Path(path).exists() for path in routing_files(name)) or _is_in_hosts(name))


def _is_in_hosts(name: str) -> bool:
    """Return whether `host setup` has written a name into /etc/hosts."""
    try:
        return applies_to(files.read(Path(HOSTS)) or "", name)
    except files.FilesError:
        return False


def _name(row: Row) -> str:
    """Return the first name that this host's resolver knows and one host may have; empty without one."""
    return next((name for name in row.names if not name_fault(name) and is_hostname(name) and is_routed(name)), "")


MAX_SENTENCES = 20
MAX_NAMES = 2
_MAX_PORTS = 10
STYLES = {State.SERVING: "green", State.DEGRADED: "yellow", State.PENDING: "yellow", State.REJECTED: "red"}


def print_services(
    out: Out,
    rows: Sequence[Row],
    printed: frozenset[str] = frozenset(),
    left_out: Sequence[str] = (),
    *,
    wide: bool = False,
) -> None:
    """Print the table, below it the sentences behind the reasons that weren't `printed`, and what to try next.

    `left_out` are sentences about what isn't in the table, which are all there is to say of an empty one. A `wide`
    table has a row for each Service, with every name and port, and its sentence there instead of below.
    """
    if rows and wide:
        head = ("SERVICE", "ADDRESS", "NAMES", "PORTS", "STATE", "REASON", "MESSAGE")
        out.table(head, [(*_cells(row, named=True, wide=True), row.message) for row in rows])
    elif rows:
        _print_table(out, rows, printed)
    for sentence in left_out:
        out.line(sentence)
    if hint := next_step(rows):
        out.line("")
        out.line("Try: ", (hint, "bold"))


def _print_table(out: Out, rows: Sequence[Row], printed: frozenset[str]) -> None:
    shown, common = grouped(rows)
    named = any(row.names or row.local_hosts for row in shown)
    head = ("SERVICE", "ADDRESS", *(["NAMES"] if named else []), "PORTS", "STATE", "REASON")
    lines = [_cells(row, named=named) for row in shown]
    lines += [
        (cause.counted, *["-"] * (len(head) - 3), (str(State.REJECTED), STYLES[State.REJECTED]), cause.reason)
        for cause in common
    ]
    out.table(head, lines)
    unprinted = [row for row in rows if printed.isdisjoint(as_reported(row))]
    if found := causes((row.key, row.reason, row.message) for row in unprinted):
        out.line("")
    print_causes(out, found)


def print_causes(out: Out, found: Sequence[Cause], *, coded: bool = False) -> None:
    """Print a sentence for each cause, `coded` with the reason where no table has it."""
    for cause in found[:MAX_SENTENCES]:
        code = f"{cause.reason}: " if coded and cause.reason and not cause.is_common else ""
        out.line(("! ", "yellow"), code + cause.sentence)
    if len(found) > MAX_SENTENCES:
        out.line(f"  and {len(found) - MAX_SENTENCES} more; `locallb status --json` has all")


def as_reported(row: Row) -> frozenset[str]:
    """Return the forms in which a Service's problem is printed: in the table, and as a warning of the program."""
    return frozenset({row.message, f"{row.reason}: {row.message}"})


def help_of(reason: str) -> dict[str, str]:
    """Return the field that leads to what the documentation has about a reason; no field without one."""
    return {"help": section(reason)} if reason else {}


def services_json(rows: Sequence[Row]) -> list[dict[str, object]]:
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
                    **help_of(port.reason),
                }
                for port in row.ports
            ],
            "reason": row.reason,
            "message": row.message,
            **help_of(row.reason),
            **({"names": list(row.names)} if row.names else {}),
            **({"localhost": [each.url for each in row.local_urls]} if row.local_urls else {}),
            **({"ordered": [{"reason": n.reason, "message": n.message} for n in row.ordered]} if row.ordered else {}),
            **({"refused": list(row.refused)} if row.refused else {}),
        }
        for row in rows
    ]


def _cells(row: Row, *, named: bool, wide: bool = False) -> Sequence[str | tuple[str, str]]:
    names = (*row.local_hosts[:1], *row.names)
    return (
        row.key.shown,
        " ".join(str(address) for address in row.addresses) or "-",
        *([few(names, len(names) if wide else MAX_NAMES) or "-"] if named else []),
        _ports(row.ports, len(row.ports) if wide else _MAX_PORTS),
        (str(row.state), STYLES[row.state]),
        " ".join(row.codes),
    )


def _ports(rows: Sequence[PortRow], most: int) -> str:
    """Format the ports, of many only the first few, with ports that don't serve first."""
    if len(rows) > most:
        rows = sorted(rows, key=lambda row: row.state is State.SERVING)
    return few([_port(row) for row in rows], most, " ") or "-"


def _port(row: PortRow) -> str:
    if row.state is not State.SERVING:
        return f"{row.port.label}({row.state})"
    return row.port.label + (_PATHS.get(row.via, "") if row.via else "")


_PATHS = {Via.PODS: "→pods", Via.API: "→api"}


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
    for parts in detail_lines(detail):
        out.line(*parts)


Parts = tuple[tuple[str, str], ...]
"""A line: texts, each with its style."""


def detail_lines(detail: Detail) -> Iterator[Parts]:
    """Write it, a line for each thing."""
    row, proxy = detail.row, detail.proxy
    yield (row.key.shown, "bold"), ("  ", ""), (str(row.state), STYLES[row.state]), (f"  {row.reason}".rstrip(), "")
    yield field_parts("addresses", " ".join(map(str, row.addresses)) or "-")
    for number, each in enumerate(row.local_urls):
        yield field_parts("" if number else "localhost", each.url)
    if row.names:
        yield field_parts("names", " ".join(row.names))
    for port in row.ports:
        backends = ", ".join((detail.backends or {}).get(str(port.port), ())) or "no backends"
        way = (
            {Via.PODS: "pods ", Via.BOTH: "pods and nodePorts ", Via.API: "pods through the API server "}.get(
                port.via, ""
            )
            if port.via
            else ""
        )
        yield field_parts("port", f"{port.port.label}  {port.state}  {port.reason}".rstrip(), f" → {way}{backends}")
        if port.message and port.message != row.message:
            yield field_parts("", port.message)
    for number, route in enumerate(detail.routes):
        yield field_parts("" if number else "routes", route)
    if proxy:
        running = f"pid {detail.pid}" if detail.pid else "no process of this host"
        if detail.container:
            running = f"container {detail.container}"
        yield field_parts("proxy", f"{proxy.name}  {running}")
        yield field_parts("files", detail.directory)
    sentences = (row.message, *(notice.message for notice in row.notices))
    for sentence in filter(None, dict.fromkeys(sentences)):
        yield ("! ", "yellow"), (sentence, "")


def field_parts(label: str, *texts: str) -> Parts:
    return ("  ", ""), (f"{label:<{_LABEL}}", "dim"), *((text, "") for text in texts)


def _backends(placed: Placement, proxy: Proxy) -> Mapping[str, tuple[str, ...]]:
    source = placed.part.part if placed.part else proxy
    upstreams = {upstream.name: upstream for upstream in source.upstreams}
    return {str(planned.port): planned.backends(upstreams) for planned in placed.ports}
