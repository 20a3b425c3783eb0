"""The commands `wait`, `url` and `curl`: Services in scripts and CI.

`wait` returns once Services are served, have their address or are found by name; `url` prints the URL of a port; `curl`
sends a request there with the host, the address and the certificate authority filled in.

Not here: the table of Services (`commands.status`), and how links are made (`cli.service_output`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from locallb.certificates import store
from locallb.cli.arguments import Arguments
from locallb.cli.commands.status import links_of_port, open_address, why_none
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused
from locallb.cli.service_output import PortLink, links
from locallb.cli.session import UNPLANNED, Session
from locallb.cli.targets import choose, matching, present
from locallb.dns.zones import is_hostname, is_wildcard, name_fault
from locallb.model.http_serving import ANY, Chain, HttpListener, HttpRoutes, LocalCertificate
from locallb.model.identities import IPAddress, ObjectKey
from locallb.observe import inspect
from locallb.planning.entrances import url, url_host
from locallb.planning.planned import Plan, PlannedPort
from locallb.planning.service_rows import NOT_DEPLOYED, Row, State
from locallb.programs import become
from locallb.threads import addresses_of

INTERVAL = 0.3
"""Seconds between two checks of `wait`."""
_RESOLVER_TIMEOUT = 1.0
"""Seconds that this host's resolver has for one name."""


class Goal(StrEnum):
    """What `wait` waits for."""

    SERVING = "serving"
    """Every port answers, and a backend of each takes connections."""
    ADDRESS = "address"
    """Its addresses are taken by its proxy, whatever is behind it."""
    NAME = "name"
    """This host's resolver finds one of its names at its address."""


def wait(session: Session, args: Arguments, out: Out) -> int:
    """Return once all named Services have reached the goal; with a code of its own once the time is over."""
    goal, began = Goal(args.goal), time.monotonic()
    deadline = began + args.seconds
    while True:
        progress = _progress(Session(session.project, session.stack), args.services, goal)
        if progress.is_complete or time.monotonic() + INTERVAL > deadline:
            break
        time.sleep(INTERVAL)
    _print(progress, args, goal, time.monotonic() - began, out)
    for complaint in progress.complaints(goal):
        out.error(f"{complaint} after {args.seconds} s")
    return Exit.OK if progress.is_complete else Exit.TIMEOUT


class _Progress(Struct, frozen=True):
    """The named Services as one check found them."""

    rows: tuple[Row, ...] = ()
    reached: frozenset[Row] = frozenset()
    missing: tuple[str, ...] = ()
    """Names that no load balancer has."""
    fault: str = ""
    """Why nothing could be planned; empty where it could be."""

    @property
    def is_complete(self) -> bool:
        """Whether everything reached the goal."""
        return not (self.fault or self.missing) and len(self.reached) == len(self.rows)

    def complaints(self, goal: Goal) -> Iterator[str]:
        """Return a sentence for each that didn't reach it."""
        if self.fault:
            yield f"{self.fault}; this was still so"
            return
        for name in self.missing:
            yield f"there is no load balancer {name!r}; this was still so"
        for row in self.rows:
            if row not in self.reached:
                yield f"{row.key} is {row.state}{_why(row, goal)}; this was still so"


def _why(row: Row, goal: Goal) -> str:
    if row.message:
        return f" ({row.message})"
    if goal is Goal.NAME:
        return (
            f", and this host's resolver finds none of {', '.join(row.names)} there" if row.names else " without a name"
        )
    return ""


def _progress(session: Session, names: Sequence[str], goal: Goal) -> _Progress:
    """Check once. Raises TargetError where a name may be several."""
    try:
        reading, plan = session.plan(glance=True)
        table = inspect(plan)
    except UNPLANNED as error:  # a cluster may be on its way up
        return _Progress(fault=str(error))
    keys = sorted({str(row.key) for row in table})
    found = {name: present(name, keys) for name in names}
    wanted = {key for matches in found.values() for key in matches}
    rows = tuple(row for row in table if str(row.key) in wanted)
    missing = tuple(name for name, matches in found.items() if not matches)
    held = {(claim.owner.service, claim.address) for claim in reading.snapshot.claims}
    return _Progress(rows, frozenset(row for row in rows if _is_reached(row, goal, held)), missing)


def _is_reached(row: Row, goal: Goal, held: Collection[tuple[ObjectKey, IPAddress]]) -> bool:
    """Return whether a Service is there; `held` are claimed addresses, by Service."""
    if goal is Goal.SERVING:
        return row.state is State.SERVING
    if goal is Goal.ADDRESS:
        claimed = bool(row.addresses) and all((row.key, address) in held for address in row.addresses)
        return claimed and all(port.reason != NOT_DEPLOYED for port in row.ports)
    addresses = {str(address) for address in row.addresses}
    return any(not addresses.isdisjoint(addresses_of(name, _RESOLVER_TIMEOUT)) for name in _hostnames(row.names))


def _print(progress: _Progress, args: Arguments, goal: Goal, seconds: float, out: Out) -> None:
    if args.json:
        services = [_fields(row, reached=row in progress.reached) for row in progress.rows]
        document = {"for": str(goal), "reached": progress.is_complete, "seconds": round(seconds, 3)}
        out.raw(json.dumps({**document, "services": services, "missing": list(progress.missing)}, indent=2))
        return
    for row in progress.rows:
        if row in progress.reached:
            out.line(" ".join((str(row.key), str(row.state), *map(str, row.addresses), *row.names)))


def _fields(row: Row, *, reached: bool) -> dict[str, object]:
    listed = {"addresses": list(map(str, row.addresses)), "names": list(row.names)}
    why = {"reason": row.reason, "message": row.message}
    return {**row.key._asdict(), "state": str(row.state), **listed, **why, "reached": reached}


def print_url(session: Session, args: Arguments, out: Out) -> int:
    """Print the URL of the named Service and nothing else."""
    return open_address(session, replace(args, only_print=True), out)


def curl(session: Session, args: Arguments, out: Out) -> int:
    """Replace this process by curl, with a URL of the named Service."""
    reading, plan = session.plan(glance=True)
    for complaint in reading.complaints:
        out.error(complaint)
    table = inspect(plan)
    (target,) = args.services
    name, path = split_target(target, sorted({str(row.key) for row in table}))
    row = next(row for row in table if str(row.key) == name)
    terms = curl_terms(row, planned_ports(plan, row), path, args.port, args.host)
    if args.json:
        out.raw(json.dumps({**row.key._asdict(), "command": [*terms, *args.options]}, indent=2))
        return Exit.OK
    return become((*terms, *args.options))


def split_target(target: str, keys: Sequence[str]) -> tuple[str, str]:
    """Split NAME/PATH at the longest NAME that a load balancer has. Raises TargetError if there is none."""
    whole, mark, query = target.partition("?")
    parts = whole.split("/")
    for length in range(min(len(parts), _MAX_PARTS), 0, -1):
        name = "/".join(parts[:length])
        if name and choose(name, keys):
            return matching(name, keys), f"{'/'.join(parts[length:])}{mark}{query}"
    return matching(parts[0], keys), ""


_MAX_PARTS = 4
"""Parts of the longest name: kind, cluster, namespace, name."""


def planned_ports(plan: Plan, row: Row) -> Mapping[tuple[int, str], PlannedPort]:
    placed = next((placement.ports for placement in plan.placements if placement.key == row.key), ())
    return {(planned.port.port, planned.port.protocol): planned for planned in placed}


def curl_terms(
    row: Row, planned: Mapping[tuple[int, str], PlannedPort], path: str, port: int, host: str
) -> tuple[str, ...]:
    """Return the command for a request to a Service. Raises Refused where it serves no HTTP, or at no clear host."""
    candidates = links_of_port(links(row, tuple(planned.values())), port)
    if not candidates:
        raise Refused(why_none([row], port))
    link = candidates[0]
    if not link.scheme:
        raise Refused(
            f"nothing says that port {link.port} of {row.key} speaks HTTP; name it http or https in the Service, give"
            " it that appProtocol, or choose another one with --port"
        )
    if link.is_local and not host:
        return _local_terms(link, path)
    chains = tuple(_chains(planned.get((link.port.port, link.port.protocol))))
    address = url_host(row.addresses[0])
    chosen = host or _host(row, link, chains) or address
    resolved = () if chosen == address else ("--resolve", f"{chosen}:{link.port.number}:{address}")
    return ("curl", "--globoff", "--noproxy", "*", *resolved, *_authority(chains), _with_path(link, chosen, path))


def _local_terms(link: PortLink, path: str) -> tuple[str, ...]:
    """Return the command for a name below `localhost`; a curl before 7.78 asks the resolver, which may not know it."""
    parts = urlsplit(link.url)
    number = parts.port or (443 if link.scheme == "https" else 80)
    authority = store.find() if link.scheme == "https" else None
    trusted = ("--cacert", str(authority.file)) if authority else ()
    resolved = ("--resolve", f"{parts.hostname}:{number}:127.0.0.1")
    return ("curl", "--globoff", "--noproxy", "*", *resolved, *trusted, f"{link.url}{path}")


def _with_path(link: PortLink, host: str, path: str) -> str:
    return f"{url(link.scheme, host, link.port.number)}{path}"


def _chains(planned: PlannedPort | None) -> Iterator[Chain]:
    for listener in planned.listeners if planned else ():
        if isinstance(listener, HttpListener):
            yield from listener.chains


def _host(row: Row, link: PortLink, chains: Sequence[Chain]) -> str:
    """Return the first host that is served at a port, or a name; empty where the address is as good.

    Raises Refused if it has hosts by wildcards only.
    """
    served = [domain for chain in chains for domain in _domains(chain)]
    found = [*_hostnames(served), *([] if served and ANY not in served else _hostnames(row.names))]
    if not found and served and ANY not in served:
        raise Refused(
            f"port {link.port} of {row.key} serves only the hosts {', '.join(sorted(set(served)))}: name one with"
            " --host"
        )
    return next(iter(found), "")


def _domains(chain: Chain) -> Iterator[str]:
    if isinstance(chain.serves, HttpRoutes):
        yield from (domain for host in chain.serves.hosts for domain in host.domains)
    else:
        yield from chain.names or (ANY,)


def _hostnames(names: Iterable[str]) -> list[str]:
    """Return the names of single hosts, without wildcards."""
    return [name for name in names if not is_wildcard(name) and is_hostname(name) and not name_fault(name)]


def _authority(chains: Sequence[Chain]) -> tuple[str, ...]:
    """Return the option that has curl trust this user's own authority, where it signs."""
    certificates = (one for chain in chains if chain.termination for one in chain.termination.certificates)
    if not any(isinstance(one, LocalCertificate) for one in certificates):
        return ()
    authority = store.find()
    return ("--cacert", str(authority.file)) if authority else ()
