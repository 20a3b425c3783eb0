"""The findings of `locallb doctor`, each with its remedy, and the room for more proxies. Pure.

There is a finding for each fact that matters. Findings are made from one frozen inspection, so that they can be tested
as tables. The number of proxies that this host can still carry is the smallest of several budgets: inotify instances,
memory, tasks, addresses.

Not here: the inspection of this host (`cli.commands.doctor`), the reading of limits (`limits`), and sharing the inotify
budget among Services (`planning.proxy_assignment`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from locallb.config.candidates import candidates, possible
from locallb.config.settings import Pool
from locallb.envoy import watches
from locallb.host.setup_plan import LEDGER
from locallb.model.identities import Family
from locallb.model.objects import Discovery
from locallb.model.snapshot import Claim, HostFacts, Socket
from locallb.model.texts import counted, few
from locallb.planning.pool_routes import PoolRoute, left_out


class FindingLevel(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    """Good to know; nothing to do."""
    WARNING = "warning"
    """Something can't be had, or soon can't."""
    PROBLEM = "problem"
    """Something doesn't work now."""


class Finding(Struct, frozen=True):
    """One line of the doctor's answer; `remedy` is empty where there is nothing to do."""

    level: FindingLevel
    topic: str
    text: str
    remedy: str = ""


class ObservedProxy(Struct, frozen=True):
    """A proxy's directory of this stack, and what runs in it."""

    name: str
    alive: bool
    answers: bool = True
    version: str = ""
    config_intact: bool = True
    """Its files are what local-lb wrote there."""


class ObservedLock(Struct, frozen=True):
    """A lock of the stack."""

    holder: str
    path: str
    removed: bool
    """Its process has ended."""


class ObservedName(Struct, frozen=True):
    """A name of the stack, what its zone's server answers (None: nothing), and what this host's resolver does."""

    name: str
    server: str
    by_server: frozenset[str] | None
    by_resolver: frozenset[str]


class HostInspection(Struct, frozen=True):
    """Everything that the doctor looks at, at one moment."""

    python: tuple[int, int]
    user: str
    envoy: str
    """Version of the installed Envoy; empty if there is none, then `envoy_problem` says why and what to do."""
    envoy_problem: str
    host: HostFacts
    limits: ProxyLimits
    pools: tuple[Pool, ...] = ()
    routes: tuple[PoolRoute, ...] = ()
    configuration_problems: tuple[str, ...] = ()
    source_problems: tuple[str, ...] = ()
    source_notices: tuple[str, ...] = ()
    straight: tuple[str, ...] = ()
    """Sentences about clusters of which connections go straight to pods."""
    left_out: tuple[str, ...] = ()
    """What was read and isn't served, and why."""
    sources: int = 0
    services: int = 0
    proxies: tuple[ObservedProxy, ...] = ()
    ledger: str = ""
    shared_ledger: str = ""
    """`usable`, `closed` (it exists, but this user may not write there) or empty: there is none."""
    claims: int = 0
    ledger_problems: tuple[str, ...] = ()
    ledger_keepers: tuple[int, ...] = ()
    """Processes that keep the ledger's lock."""
    leftovers: tuple[str, ...] = ()
    unclaimed: tuple[str, ...] = ()
    """Addresses that the state has and the ledger has not."""
    state: str = ""
    state_problems: tuple[str, ...] = ()
    locks: tuple[ObservedLock, ...] = ()
    docker: str = ""
    """`usable`, `closed` or empty."""
    docker_context_problem: str = ""
    """That the context which counts isn't there, and what to do."""
    docker_elsewhere: str = ""
    """Where Docker is, if that isn't looked at."""
    podman: tuple[tuple[str, str], ...] = ()
    """Sockets that may be Podman's, each `usable`, `closed` or empty."""
    image: str = ""
    """The image that the stack's containers are made from; empty for one without containers."""
    lacks_image: bool = False
    """It isn't there."""
    wsl: bool = False
    """This Linux runs in Windows."""
    mapped: bool = False
    """Services of the stack are ports of the loopback address."""
    disk_free: int = 1 << 40
    """Bytes free where proxies' directories are."""
    names: tuple[ObservedName, ...] = ()
    """One of each zone."""
    local_name: str = ""
    """A name of the stack below `localhost`; empty where it has none."""
    knows_local_names: bool = False
    """This host's resolver finds it on this host."""
    authority: str = ""
    """This user's own authority for certificates; empty where there is none."""
    doubting: tuple[str, ...] = ()
    """Who on this host doesn't believe it."""
    extra: tuple[Finding, ...] = ()
    """What could not even be looked at."""


PROXY_MEMORY = 16 << 20
"""Bytes of its own that an idle proxy takes."""
PROXY_TASKS = 8
"""Threads of a proxy, with one to spare."""
TIGHT = 8
"""Proxies below which room is scarce."""
_INSTANCES = watches(Discovery.STATIC, 1)


class ProxyLimits(Struct, frozen=True):
    """What bounds the number of proxies; each is what is left for new ones."""

    watches: int
    """inotify instances of this user that nobody uses, our proxies' included in what is used."""
    watch_limit: int
    memory: int
    """Bytes that the kernel calls available, within this cgroup."""
    tasks: int
    """Processes and threads that this user may still start, within this cgroup."""
    addresses: int
    """Free addresses of the stack's pools that this host can bind."""
    files: int
    """Open files that a process may have."""
    watch_holders: tuple[str, ...] = ()
    """Which processes have how many inotify instances, the most first."""


class ProxyHeadroom(Struct, frozen=True):
    """How many proxies still fit, and why no more."""

    proxies: int
    limited_by: str
    sentence: str
    remedy: str

    @property
    def is_tight(self) -> bool:
        """Only a few more fit."""
        return self.proxies < TIGHT


def headroom(limits: ProxyLimits) -> ProxyHeadroom:
    """Find the budget that ends first."""
    budgets = (
        (
            limits.watches // _INSTANCES,
            "inotify instances",
            f"{limits.watches} of {limits.watch_limit} left",
            "`sudo locallb host setup --yes` raises the limit, or end other programs that watch files"
            + (f" (most: {', '.join(limits.watch_holders)})" if limits.watch_holders else ""),
        ),
        (limits.addresses, "addresses", f"{limits.addresses} left", "add addresses to local-lb:pools"),
        (
            limits.memory // PROXY_MEMORY,
            "memory",
            f"{limits.memory >> 20} MiB left",
            "end other programs, or give the container more memory",
        ),
        (
            limits.tasks // PROXY_TASKS,
            "processes",
            f"{limits.tasks} threads left",
            "raise `ulimit -u` or the container's pids limit",
        ),
    )
    room, name, why, remedy = min(budgets, key=lambda budget: budget[0])
    fit = counted(room, "more proxy", "more proxies")
    return ProxyHeadroom(room, name, f"room for {fit} (limit: {name}, {why})", remedy)


def free_addresses(pools: Iterable[Pool], host: HostFacts, claims: Iterable[Claim]) -> int:
    """Count the addresses that Services could still get: IPv4 where there is any such pool, otherwise IPv6."""
    listed = tuple(pools)
    claimed = {*(claim.address for claim in claims), *(socket.address for socket in host.sockets)}
    counts = []
    for family in Family:
        shelves = [possible(pool, family, host) for pool in listed]
        counts.append(sum(shelf.size - sum(address in shelf for address in claimed) for shelf in shelves))
        if any(candidates(pool, family).size for pool in listed):
            break
    return counts[-1]


OLDEST_PYTHON = (3, 11)
USUAL_PORTS = (22, 53, 80, 443)
"""What Services like to use; a wildcard listener there takes the port on every address."""
_SHOWN = 5
"""Items of a list in one sentence."""
_SETUP = "`sudo locallb host setup --yes` lifts it"


LOW_DISK = 100 << 20
"""Bytes below which a full disk is near: each proxy's logs may take two MiB."""


def examine(observed: HostInspection) -> tuple[Finding, ...]:
    """Find everything that matters, in the order in which a person would look."""
    return (
        *_programs(observed),
        *_windows(observed),
        *_rights(observed),
        *headroom_findings(observed),
        *_pools(observed),
        *_ports(observed.host.sockets),
        *_configuration(observed),
        *_proxies(observed),
        *_state(observed),
        *_ledger(observed),
        *_names(observed),
        *_authority(observed),
        *observed.extra,
    )


def _programs(observed: HostInspection) -> Iterator[Finding]:
    version = ".".join(map(str, observed.python))
    if observed.python < OLDEST_PYTHON:
        yield Finding(FindingLevel.PROBLEM, "Python", f"Python {version} is too old", "use Python 3.11 or newer")
    else:
        yield Finding(FindingLevel.OK, "Python", f"Python {version}")
    if observed.envoy:
        yield Finding(FindingLevel.OK, "Envoy", f"Envoy {observed.envoy}")
    else:
        yield Finding(FindingLevel.PROBLEM, "Envoy", *observed.envoy_problem.rsplit(": ", 1))
    states = {
        "usable": "answers to this user; the process runtime doesn't need it",
        "closed": "runs, but not for this user; the process runtime doesn't need it",
        "": "isn't running; the process runtime doesn't need it",
    }
    if observed.docker_context_problem:
        yield Finding(FindingLevel.NOTE, "Docker", *observed.docker_context_problem.split(": ", 1))
    elif observed.docker_elsewhere:
        text = f"Docker is {observed.docker_elsewhere}, and isn't looked at; the process runtime doesn't need it"
        yield Finding(FindingLevel.NOTE, "Docker", text)
    else:
        yield Finding(
            FindingLevel.NOTE if observed.docker else FindingLevel.OK, "Docker", f"Docker {states[observed.docker]}"
        )
    if observed.image and observed.lacks_image:
        remedy = "`locallb up` fetches it; where its registry can't be reached, `locallb image` makes one"
        yield Finding(FindingLevel.NOTE, "image", f"{observed.image} isn't there", remedy)
    elif observed.image:
        yield Finding(FindingLevel.OK, "image", f"{observed.image} is there")
    for path, state in observed.podman:
        if state:
            yield Finding(FindingLevel.NOTE, "Podman", f"Podman at {path} {states[state]}")


def _windows(observed: HostInspection) -> Iterator[Finding]:
    if observed.wsl:
        text = "this Linux runs in Windows (WSL2), which reaches ports of its 127.0.0.1 and no other address; untested"
        remedy = (
            "" if observed.mapped else "`local-lb:portMapping: loopback` in the stack gives every Service such a port"
        )
        yield Finding(FindingLevel.NOTE, "WSL2", text, remedy)


def _rights(observed: HostInspection) -> Iterator[Finding]:
    start = observed.host.unprivileged_port_start
    low = [port for port in USUAL_PORTS if port < start]
    if low:
        text = f"{observed.user} may serve ports from {start} on, not {', '.join(map(str, low))}"
        yield Finding(FindingLevel.WARNING, "rights", text, _SETUP)
    else:
        yield Finding(FindingLevel.OK, "rights", f"{observed.user} may serve every port")


def headroom_findings(observed: HostInspection) -> Iterator[Finding]:
    """Return how many proxies still fit, and what each proxy can carry."""
    room = headroom(observed.limits)
    level = FindingLevel.PROBLEM if not room.proxies else FindingLevel.WARNING if room.is_tight else FindingLevel.OK
    yield Finding(level, "headroom", room.sentence, room.remedy if level is not FindingLevel.OK else "")
    carried = max(0, observed.limits.files // 2)
    if carried < 1 << 9:
        text = f"each proxy carries about {carried} connections: a process may have {observed.limits.files} open files"
        yield Finding(
            FindingLevel.WARNING, "headroom", text, "raise the hard limit: `ulimit -H -n 65536`, or limits.conf"
        )
    if observed.disk_free < LOW_DISK:
        text = f"{observed.disk_free >> 20} MiB are free where proxies keep their files"
        yield Finding(FindingLevel.PROBLEM, "disk", text, "free some space, or set XDG_STATE_HOME to another disk")


def _names(observed: HostInspection) -> Iterator[Finding]:
    """Say where a question for a name ends."""
    if observed.local_name and observed.knows_local_names:
        yield Finding(FindingLevel.OK, "names", f"every program of this host finds {observed.local_name}")
    elif observed.local_name:
        text = (
            f"browsers and curl find {observed.local_name}, other programs don't: this host's resolver doesn't know it"
        )
        remedy = "install nss-myhostname (Debian: libnss-myhostname), or let systemd-resolved resolve names"
        yield Finding(FindingLevel.NOTE, "names", text, remedy)
    for name in observed.names:
        if name.by_server is None:
            text = f"{name.server} doesn't answer for {name.name}"
            yield Finding(
                FindingLevel.WARNING, "names", text, "`locallb up` starts the stack's own server; start any other"
            )
        elif not name.by_server:
            text = f"{name.server} answers, and doesn't know {name.name}"
            yield Finding(FindingLevel.WARNING, "names", text, "`locallb up` tells it")
        elif name.by_resolver == name.by_server:
            addresses = " ".join(sorted(name.by_resolver))
            yield Finding(FindingLevel.OK, "names", f"this host's resolver knows {name.name}: {addresses}")
        else:
            other = f"says {' '.join(sorted(name.by_resolver))} for" if name.by_resolver else "doesn't know"
            text = f"this host's resolver {other} {name.name}, which {name.server} knows: it doesn't ask there"
            yield Finding(FindingLevel.WARNING, "names", text, "`sudo locallb host setup --yes` has it ask there")


def _authority(observed: HostInspection) -> Iterator[Finding]:
    if observed.doubting:
        text = f"{observed.authority} isn't believed by {few(observed.doubting, _SHOWN)}"
        yield Finding(FindingLevel.NOTE, "authority", text, "`locallb ca trust` shows how they come to")
    elif observed.authority:
        yield Finding(
            FindingLevel.OK, "authority", f"{observed.authority} is believed by this host's programs and browsers"
        )


def _pools(observed: HostInspection) -> Iterator[Finding]:
    broken = {route.pool for route in observed.routes if route.problem or not route.local}
    for pool in observed.pools:
        if pool.name not in broken:
            ranges = ", ".join(str(span) for span in pool.ranges)
            yield Finding(FindingLevel.OK, "pools", f"{pool.name} ({ranges}) is usable")
    for problem, partly in dict.fromkeys((route.problem, route.partly) for route in observed.routes if route.problem):
        yield Finding(_weight(partly=partly), "pools", problem.message, "change local-lb:pools")
    for partly, text in left_out(observed.routes):
        yield Finding(_weight(partly=partly), "pools", text, "`sudo locallb host setup --yes` adds it")
    for level, texts in (
        (FindingLevel.WARNING, [route.warning for route in observed.routes]),
        (FindingLevel.NOTE, [route.note for route in observed.routes]),
    ):
        yield from (Finding(level, "pools", text) for text in dict.fromkeys(texts) if text)


def _weight(*, partly: bool) -> FindingLevel:
    """Return the severity of an unavailable prefix: a warning if Services get other addresses as well."""
    return FindingLevel.WARNING if partly else FindingLevel.PROBLEM


def _ports(sockets: Sequence[Socket]) -> Iterator[Finding]:
    claimed: dict[tuple[int, str], str] = {}
    for socket in sockets:
        if socket.address.is_unspecified:
            claimed.setdefault((socket.port, str(socket.protocol)), socket.process or "a process of another user")
    usual = {key: party for key, party in sorted(claimed.items()) if key[0] in USUAL_PORTS}
    for (port, protocol), party in usual.items():
        text = f"{party} listens on every address at {port}/{protocol}: no Service can have that port"
        yield Finding(FindingLevel.WARNING, "ports", text, "bind it to an address of its own (for sshd: ListenAddress)")
    rest = [(key, party) for key, party in sorted(claimed.items()) if key not in usual]
    others = [f"{port}/{protocol} by {party}" for (port, protocol), party in rest]
    if others:
        yield Finding(FindingLevel.NOTE, "ports", f"taken on every address: {few(others, _SHOWN)}")
    if not claimed:
        yield Finding(FindingLevel.OK, "ports", "no port is taken on every address")


def _configuration(observed: HostInspection) -> Iterator[Finding]:
    for text in observed.configuration_problems:
        yield Finding(FindingLevel.PROBLEM, "stack", text, "correct it; nothing is changed until then")
    for text in observed.source_problems:
        yield Finding(
            FindingLevel.PROBLEM, "sources", text, "repair the source; until then its load balancers stay as they are"
        )
    for text in observed.source_notices:
        yield Finding(FindingLevel.WARNING, "sources", text)
    for text in observed.left_out:
        yield Finding(FindingLevel.NOTE, "sources", text)
    for text in observed.straight:
        yield Finding(FindingLevel.OK, "sources", text)
    if observed.sources and not observed.source_problems:
        sources, services = counted(observed.sources, "source"), counted(observed.services, "Service")
        yield Finding(FindingLevel.OK, "sources", f"{sources} read: {services} that this stack serves or rejects")


def _proxies(observed: HostInspection) -> Iterator[Finding]:
    failures = {
        "is gone": [proxy.name for proxy in observed.proxies if not proxy.alive],
        "doesn't answer": [proxy.name for proxy in observed.proxies if proxy.alive and not proxy.answers],
        f"runs another Envoy than {observed.envoy}": [
            proxy.name
            for proxy in observed.proxies
            if proxy.alive and observed.envoy and proxy.version not in {"", observed.envoy}
        ],
        "has files that somebody changed": [proxy.name for proxy in observed.proxies if not proxy.config_intact],
    }
    for what, names in failures.items():
        if names:
            yield Finding(FindingLevel.PROBLEM, "proxies", f"{what}: {few(names, _SHOWN)}", "`locallb up` repairs it")
    if observed.proxies and not any(failures.values()):
        yield Finding(FindingLevel.OK, "proxies", f"{counted(len(observed.proxies), 'proxy', 'proxies')} run")


def _state(observed: HostInspection) -> Iterator[Finding]:
    for text in observed.state_problems:
        yield Finding(FindingLevel.PROBLEM, "state", text, "`locallb state restore` goes back to the last good state")
    if observed.state and not observed.state_problems:
        yield Finding(FindingLevel.OK, "state", observed.state)
    for lock in observed.locks:
        if lock.removed:
            text = f"a lock of {lock.holder} was left; the next run removes it"
            yield Finding(FindingLevel.NOTE, "lock", text)
        else:
            text = f"the stack is locked by {lock.holder}"
            yield Finding(FindingLevel.WARNING, "lock", text, f"wait for it to end; if it is gone, delete {lock.path}")


def _ledger(observed: HostInspection) -> Iterator[Finding]:
    for text in observed.ledger_problems:
        yield Finding(FindingLevel.PROBLEM, "ledger", text)
    for pid in observed.ledger_keepers:
        text = (
            f"process {pid} keeps the lock of {observed.ledger}; claims go on without it, each command a little later"
        )
        yield Finding(
            FindingLevel.WARNING, "ledger", text, f"look at `ps -fp {pid}`, and end it if it is nothing of yours"
        )
    if observed.unclaimed:
        text = f"the claim of {few(observed.unclaimed, _SHOWN)} is gone: another stack may have it, or take it"
        yield Finding(FindingLevel.PROBLEM, "ledger", text, "`locallb up` claims it again")
    if observed.leftovers:
        text = f"left by a lost state or a stopped run: {few(observed.leftovers, _SHOWN)}"
        yield Finding(
            FindingLevel.WARNING, "ledger", text, "`locallb gc` lists it all, and removes this stack's with --yes"
        )
    if observed.shared_ledger == "closed":
        text = (
            f"{LEDGER} is this host's ledger, but {observed.user} may not write there: others don't see our addresses"
        )
        yield Finding(
            FindingLevel.WARNING, "ledger", text, "`sudo locallb host setup --yes --group GROUP`, and join GROUP"
        )
    elif observed.ledger and not observed.ledger_problems:
        claims = counted(observed.claims, "address", "addresses")
        yield Finding(FindingLevel.OK, "ledger", f"{claims} claimed in {observed.ledger}")
