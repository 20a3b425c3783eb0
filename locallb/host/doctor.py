"""The findings of `locallb doctor`: one for each thing that matters, from a frozen inspection, with its remedy.

Pure. Not here: what is looked at (`observation`), looking (`cli.host.examine`) and printing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from locallb.host.headroom import headroom
from locallb.host.observation import Finding, HostInspection, Level
from locallb.host.setup.plan import LEDGER
from locallb.model.formatting import counted, few
from locallb.model.snapshot import Socket
from locallb.planning.addresses.pool_routes import left_out

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
        yield Finding(Level.PROBLEM, "Python", f"Python {version} is too old", "use Python 3.11 or newer")
    else:
        yield Finding(Level.OK, "Python", f"Python {version}")
    if observed.envoy:
        yield Finding(Level.OK, "Envoy", f"Envoy {observed.envoy}")
    else:
        yield Finding(Level.PROBLEM, "Envoy", *observed.envoy_problem.rsplit(": ", 1))
    states = {
        "usable": "answers to this user; the process runtime doesn't need it",
        "closed": "runs, but not for this user; the process runtime doesn't need it",
        "": "isn't running; the process runtime doesn't need it",
    }
    if observed.docker_context_problem:
        yield Finding(Level.NOTE, "Docker", *observed.docker_context_problem.split(": ", 1))
    elif observed.docker_elsewhere:
        text = f"Docker is {observed.docker_elsewhere}, and isn't looked at; the process runtime doesn't need it"
        yield Finding(Level.NOTE, "Docker", text)
    else:
        yield Finding(Level.NOTE if observed.docker else Level.OK, "Docker", f"Docker {states[observed.docker]}")
    if observed.image and observed.lacks_image:
        remedy = "`locallb up` fetches it; where its registry can't be reached, `locallb image` makes one"
        yield Finding(Level.NOTE, "image", f"{observed.image} isn't there", remedy)
    elif observed.image:
        yield Finding(Level.OK, "image", f"{observed.image} is there")
    for path, state in observed.podman:
        if state:
            yield Finding(Level.NOTE, "Podman", f"Podman at {path} {states[state]}")


def _windows(observed: HostInspection) -> Iterator[Finding]:
    if observed.wsl:
        text = "this Linux runs in Windows (WSL2), which reaches ports of its 127.0.0.1 and no other address; untested"
        remedy = (
            "" if observed.mapped else "`local-lb:portMapping: loopback` in the stack gives every Service such a port"
        )
        yield Finding(Level.NOTE, "WSL2", text, remedy)


def _rights(observed: HostInspection) -> Iterator[Finding]:
    start = observed.host.unprivileged_port_start
    low = [port for port in USUAL_PORTS if port < start]
    if low:
        text = f"{observed.user} may serve ports from {start} on, not {', '.join(map(str, low))}"
        yield Finding(Level.WARNING, "rights", text, _SETUP)
    else:
        yield Finding(Level.OK, "rights", f"{observed.user} may serve every port")


def headroom_findings(observed: HostInspection) -> Iterator[Finding]:
    """Return how many proxies still fit, and what each proxy can carry."""
    room = headroom(observed.limits)
    level = Level.PROBLEM if not room.proxies else Level.WARNING if room.is_tight else Level.OK
    yield Finding(level, "headroom", room.sentence, room.remedy if level is not Level.OK else "")
    carried = max(0, observed.limits.files // 2)
    if carried < 1 << 9:
        text = f"each proxy carries about {carried} connections: a process may have {observed.limits.files} open files"
        yield Finding(Level.WARNING, "headroom", text, "raise the hard limit: `ulimit -H -n 65536`, or limits.conf")
    if observed.disk_free < LOW_DISK:
        text = f"{observed.disk_free >> 20} MiB are free where proxies keep their files"
        yield Finding(Level.PROBLEM, "disk", text, "free some space, or set XDG_STATE_HOME to another disk")


def _names(observed: HostInspection) -> Iterator[Finding]:
    """Say where a question for a name ends."""
    for name in observed.names:
        if name.by_server is None:
            text = f"{name.server} doesn't answer for {name.name}"
            yield Finding(Level.WARNING, "names", text, "`locallb up` starts the stack's own server; start any other")
        elif not name.by_server:
            text = f"{name.server} answers, and doesn't know {name.name}"
            yield Finding(Level.WARNING, "names", text, "`locallb up` tells it")
        elif name.by_resolver == name.by_server:
            addresses = " ".join(sorted(name.by_resolver))
            yield Finding(Level.OK, "names", f"this host's resolver knows {name.name}: {addresses}")
        else:
            other = f"says {' '.join(sorted(name.by_resolver))} for" if name.by_resolver else "doesn't know"
            text = f"this host's resolver {other} {name.name}, which {name.server} knows: it doesn't ask there"
            yield Finding(Level.WARNING, "names", text, "`sudo locallb host setup --yes` has it ask there")


def _authority(observed: HostInspection) -> Iterator[Finding]:
    if observed.doubting:
        text = f"{observed.authority} isn't believed by {few(observed.doubting, _SHOWN)}"
        yield Finding(Level.NOTE, "authority", text, "`locallb ca trust` shows how they come to")
    elif observed.authority:
        yield Finding(Level.OK, "authority", f"{observed.authority} is believed by this host's programs and browsers")


def _pools(observed: HostInspection) -> Iterator[Finding]:
    broken = {route.pool for route in observed.routes if route.problem or not route.local}
    for pool in observed.pools:
        if pool.name not in broken:
            ranges = ", ".join(str(span) for span in pool.ranges)
            yield Finding(Level.OK, "pools", f"{pool.name} ({ranges}) is usable")
    for problem, partly in dict.fromkeys((route.problem, route.partly) for route in observed.routes if route.problem):
        yield Finding(_weight(partly=partly), "pools", problem.message, "change local-lb:pools")
    for partly, text in left_out(observed.routes):
        yield Finding(_weight(partly=partly), "pools", text, "`sudo locallb host setup --yes` adds it")
    for level, texts in (
        (Level.WARNING, [route.warning for route in observed.routes]),
        (Level.NOTE, [route.note for route in observed.routes]),
    ):
        yield from (Finding(level, "pools", text) for text in dict.fromkeys(texts) if text)


def _weight(*, partly: bool) -> Level:
    """Return the severity of an unavailable prefix: a warning if Services get other addresses as well."""
    return Level.WARNING if partly else Level.PROBLEM


def _ports(sockets: Sequence[Socket]) -> Iterator[Finding]:
    claimed: dict[tuple[int, str], str] = {}
    for socket in sockets:
        if socket.address.is_unspecified:
            claimed.setdefault((socket.port, str(socket.protocol)), socket.process or "a process of another user")
    usual = {key: party for key, party in sorted(claimed.items()) if key[0] in USUAL_PORTS}
    for (port, protocol), party in usual.items():
        text = f"{party} listens on every address at {port}/{protocol}: no Service can have that port"
        yield Finding(Level.WARNING, "ports", text, "bind it to an address of its own (for sshd: ListenAddress)")
    rest = [(key, party) for key, party in sorted(claimed.items()) if key not in usual]
    others = [f"{port}/{protocol} by {party}" for (port, protocol), party in rest]
    if others:
        yield Finding(Level.NOTE, "ports", f"taken on every address: {few(others, _SHOWN)}")
    if not claimed:
        yield Finding(Level.OK, "ports", "no port is taken on every address")


def _configuration(observed: HostInspection) -> Iterator[Finding]:
    for text in observed.configuration_problems:
        yield Finding(Level.PROBLEM, "stack", text, "correct it; nothing is changed until then")
    for text in observed.source_problems:
        yield Finding(
            Level.PROBLEM, "sources", text, "repair the source; until then its load balancers stay as they are"
        )
    for text in observed.source_notices:
        yield Finding(Level.WARNING, "sources", text)
    for text in observed.left_out:
        yield Finding(Level.NOTE, "sources", text)
    if observed.sources and not observed.source_problems:
        sources, services = counted(observed.sources, "source"), counted(observed.services, "Service")
        yield Finding(Level.OK, "sources", f"{sources} read: {services} that this stack serves or rejects")


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
            yield Finding(Level.PROBLEM, "proxies", f"{what}: {few(names, _SHOWN)}", "`locallb up` repairs it")
    if observed.proxies and not any(failures.values()):
        yield Finding(Level.OK, "proxies", f"{counted(len(observed.proxies), 'proxy', 'proxies')} run")


def _state(observed: HostInspection) -> Iterator[Finding]:
    for text in observed.state_problems:
        yield Finding(Level.PROBLEM, "state", text, "`locallb state restore` goes back to the last good state")
    if observed.state and not observed.state_problems:
        yield Finding(Level.OK, "state", observed.state)
    for lock in observed.locks:
        if lock.removed:
            text = f"a lock of {lock.holder} was left; the next run removes it"
            yield Finding(Level.NOTE, "lock", text)
        else:
            text = f"the stack is locked by {lock.holder}"
            yield Finding(Level.WARNING, "lock", text, f"wait for it to end; if it is gone, delete {lock.path}")


def _ledger(observed: HostInspection) -> Iterator[Finding]:
    for text in observed.ledger_problems:
        yield Finding(Level.PROBLEM, "ledger", text)
    for pid in observed.ledger_keepers:
        text = (
            f"process {pid} keeps the lock of {observed.ledger}; claims go on without it, each command a little later"
        )
        yield Finding(Level.WARNING, "ledger", text, f"look at `ps -fp {pid}`, and end it if it is nothing of yours")
    if observed.unclaimed:
        text = f"the claim of {few(observed.unclaimed, _SHOWN)} is gone: another stack may have it, or take it"
        yield Finding(Level.PROBLEM, "ledger", text, "`locallb up` claims it again")
    if observed.leftovers:
        text = f"left by a lost state or a stopped run: {few(observed.leftovers, _SHOWN)}"
        yield Finding(Level.WARNING, "ledger", text, "`locallb gc` lists it all, and removes this stack's with --yes")
    if observed.shared_ledger == "closed":
        text = (
            f"{LEDGER} is this host's ledger, but {observed.user} may not write there: others don't see our addresses"
        )
        yield Finding(Level.WARNING, "ledger", text, "`sudo locallb host setup --yes --group GROUP`, and join GROUP")
    elif observed.ledger and not observed.ledger_problems:
        claims = counted(observed.claims, "address", "addresses")
        yield Finding(Level.OK, "ledger", f"{claims} claimed in {observed.ledger}")
