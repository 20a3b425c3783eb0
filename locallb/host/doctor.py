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


def examine(seen: HostInspection) -> tuple[Finding, ...]:
    """Find everything that matters, in the order in which a person would look."""
    return (
        *_programs(seen),
        *_windows(seen),
        *_rights(seen),
        *headroom_findings(seen),
        *_pools(seen),
        *_ports(seen.host.sockets),
        *_configuration(seen),
        *_proxies(seen),
        *_state(seen),
        *_ledger(seen),
        *_names(seen),
        *_authority(seen),
        *seen.extra,
    )


def _programs(seen: HostInspection) -> Iterator[Finding]:
    version = ".".join(map(str, seen.python))
    if seen.python < OLDEST_PYTHON:
        yield Finding(Level.PROBLEM, "Python", f"Python {version} is too old", "use Python 3.11 or newer")
    else:
        yield Finding(Level.OK, "Python", f"Python {version}")
    if seen.envoy:
        yield Finding(Level.OK, "Envoy", f"Envoy {seen.envoy}")
    else:
        yield Finding(Level.PROBLEM, "Envoy", *seen.envoy_problem.rsplit(": ", 1))
    states = {
        "usable": "answers to this user; the process runtime doesn't need it",
        "closed": "runs, but not for this user; the process runtime doesn't need it",
        "": "isn't running; the process runtime doesn't need it",
    }
    if seen.docker_context_problem:
        yield Finding(Level.NOTE, "Docker", *seen.docker_context_problem.split(": ", 1))
    elif seen.docker_elsewhere:
        text = f"Docker is {seen.docker_elsewhere}, and isn't looked at; the process runtime doesn't need it"
        yield Finding(Level.NOTE, "Docker", text)
    else:
        yield Finding(Level.NOTE if seen.docker else Level.OK, "Docker", f"Docker {states[seen.docker]}")
    if seen.image and seen.lacks_image:
        remedy = "`locallb up` fetches it; where its registry can't be reached, `locallb image` makes one"
        yield Finding(Level.NOTE, "image", f"{seen.image} isn't there", remedy)
    elif seen.image:
        yield Finding(Level.OK, "image", f"{seen.image} is there")
    for path, state in seen.podman:
        if state:
            yield Finding(Level.NOTE, "Podman", f"Podman at {path} {states[state]}")


def _windows(seen: HostInspection) -> Iterator[Finding]:
    if seen.wsl:
        text = "this Linux runs in Windows (WSL2), which reaches ports of its 127.0.0.1 and no other address; untested"
        remedy = "" if seen.mapped else "`local-lb:portMapping: loopback` in the stack gives every Service such a port"
        yield Finding(Level.NOTE, "WSL2", text, remedy)


def _rights(seen: HostInspection) -> Iterator[Finding]:
    start = seen.host.unprivileged_port_start
    low = [port for port in USUAL_PORTS if port < start]
    if low:
        text = f"{seen.user} may serve ports from {start} on, not {', '.join(map(str, low))}"
        yield Finding(Level.WARNING, "rights", text, _SETUP)
    else:
        yield Finding(Level.OK, "rights", f"{seen.user} may serve every port")


def headroom_findings(seen: HostInspection) -> Iterator[Finding]:
    """Return how many proxies still fit, and what each proxy can carry."""
    room = headroom(seen.limits)
    level = Level.PROBLEM if not room.proxies else Level.WARNING if room.is_tight else Level.OK
    yield Finding(level, "headroom", room.sentence, room.remedy if level is not Level.OK else "")
    carried = max(0, seen.limits.files // 2)
    if carried < 1 << 9:
        text = f"each proxy carries about {carried} connections: a process may have {seen.limits.files} open files"
        yield Finding(Level.WARNING, "headroom", text, "raise the hard limit: `ulimit -H -n 65536`, or limits.conf")
    if seen.disk_free < LOW_DISK:
        text = f"{seen.disk_free >> 20} MiB are free where proxies keep their files"
        yield Finding(Level.PROBLEM, "disk", text, "free some space, or set XDG_STATE_HOME to another disk")


def _names(seen: HostInspection) -> Iterator[Finding]:
    """Say where a question for a name ends."""
    for name in seen.names:
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


def _authority(seen: HostInspection) -> Iterator[Finding]:
    if seen.doubting:
        text = f"{seen.authority} isn't believed by {few(seen.doubting, _SHOWN)}"
        yield Finding(Level.NOTE, "authority", text, "`locallb ca trust` shows how they come to")
    elif seen.authority:
        yield Finding(Level.OK, "authority", f"{seen.authority} is believed by this host's programs and browsers")


def _pools(seen: HostInspection) -> Iterator[Finding]:
    broken = {route.pool for route in seen.routes if route.problem or not route.local}
    for pool in seen.pools:
        if pool.name not in broken:
            ranges = ", ".join(str(span) for span in pool.ranges)
            yield Finding(Level.OK, "pools", f"{pool.name} ({ranges}) is usable")
    for problem, partly in dict.fromkeys((route.problem, route.partly) for route in seen.routes if route.problem):
        yield Finding(_weight(partly=partly), "pools", problem.message, "change local-lb:pools")
    for partly, text in left_out(seen.routes):
        yield Finding(_weight(partly=partly), "pools", text, "`sudo locallb host setup --yes` adds it")
    for level, texts in (
        (Level.WARNING, [route.warning for route in seen.routes]),
        (Level.NOTE, [route.note for route in seen.routes]),
    ):
        yield from (Finding(level, "pools", text) for text in dict.fromkeys(texts) if text)


def _weight(*, partly: bool) -> Level:
    """Return the severity of an unavailable prefix: a warning if Services get other addresses as well."""
    return Level.WARNING if partly else Level.PROBLEM


def _ports(sockets: Sequence[Socket]) -> Iterator[Finding]:
    taken: dict[tuple[int, str], str] = {}
    for socket in sockets:
        if socket.address.is_unspecified:
            taken.setdefault((socket.port, str(socket.protocol)), socket.process or "a process of another user")
    usual = {key: who for key, who in sorted(taken.items()) if key[0] in USUAL_PORTS}
    for (port, protocol), who in usual.items():
        text = f"{who} listens on every address at {port}/{protocol}: no Service can have that port"
        yield Finding(Level.WARNING, "ports", text, "bind it to an address of its own (for sshd: ListenAddress)")
    rest = [(key, who) for key, who in sorted(taken.items()) if key not in usual]
    others = [f"{port}/{protocol} by {who}" for (port, protocol), who in rest]
    if others:
        yield Finding(Level.NOTE, "ports", f"taken on every address: {few(others, _SHOWN)}")
    if not taken:
        yield Finding(Level.OK, "ports", "no port is taken on every address")


def _configuration(seen: HostInspection) -> Iterator[Finding]:
    for text in seen.configuration_problems:
        yield Finding(Level.PROBLEM, "stack", text, "correct it; nothing is changed until then")
    for text in seen.source_problems:
        yield Finding(
            Level.PROBLEM, "sources", text, "repair the source; until then its load balancers stay as they are"
        )
    for text in seen.source_notices:
        yield Finding(Level.WARNING, "sources", text)
    for text in seen.left_out:
        yield Finding(Level.NOTE, "sources", text)
    if seen.sources and not seen.source_problems:
        sources, services = counted(seen.sources, "source"), counted(seen.services, "Service")
        yield Finding(Level.OK, "sources", f"{sources} read: {services} that this stack serves or rejects")


def _proxies(seen: HostInspection) -> Iterator[Finding]:
    troubles = {
        "is gone": [proxy.name for proxy in seen.proxies if not proxy.alive],
        "doesn't answer": [proxy.name for proxy in seen.proxies if proxy.alive and not proxy.answers],
        f"runs another Envoy than {seen.envoy}": [
            proxy.name for proxy in seen.proxies if proxy.alive and seen.envoy and proxy.version not in {"", seen.envoy}
        ],
        "has files that somebody changed": [proxy.name for proxy in seen.proxies if not proxy.config_kept],
    }
    for what, names in troubles.items():
        if names:
            yield Finding(Level.PROBLEM, "proxies", f"{what}: {few(names, _SHOWN)}", "`locallb up` repairs it")
    if seen.proxies and not any(troubles.values()):
        yield Finding(Level.OK, "proxies", f"{counted(len(seen.proxies), 'proxy', 'proxies')} run")


def _state(seen: HostInspection) -> Iterator[Finding]:
    for text in seen.state_problems:
        yield Finding(Level.PROBLEM, "state", text, "`locallb state restore` goes back to the last good state")
    if seen.state and not seen.state_problems:
        yield Finding(Level.OK, "state", seen.state)
    for lock in seen.locks:
        if lock.gone:
            text = f"a lock of {lock.holder} was left; the next run removes it"
            yield Finding(Level.NOTE, "lock", text)
        else:
            text = f"the stack is locked by {lock.holder}"
            yield Finding(Level.WARNING, "lock", text, f"wait for it to end; if it is gone, delete {lock.path}")


def _ledger(seen: HostInspection) -> Iterator[Finding]:
    for text in seen.ledger_problems:
        yield Finding(Level.PROBLEM, "ledger", text)
    for pid in seen.ledger_keepers:
        text = f"process {pid} keeps the lock of {seen.ledger}; claims go on without it, each command a little later"
        yield Finding(Level.WARNING, "ledger", text, f"look at `ps -fp {pid}`, and end it if it is nothing of yours")
    if seen.unclaimed:
        text = f"the claim of {few(seen.unclaimed, _SHOWN)} is gone: another stack may have it, or take it"
        yield Finding(Level.PROBLEM, "ledger", text, "`locallb up` claims it again")
    if seen.leftovers:
        text = f"left by a lost state or a stopped run: {few(seen.leftovers, _SHOWN)}"
        yield Finding(Level.WARNING, "ledger", text, "`locallb gc` lists it all, and removes this stack's with --yes")
    if seen.shared_ledger == "closed":
        text = f"{LEDGER} is this host's ledger, but {seen.user} may not write there: others don't see our addresses"
        yield Finding(Level.WARNING, "ledger", text, "`sudo locallb host setup --yes --group GROUP`, and join GROUP")
    elif seen.ledger and not seen.ledger_problems:
        claims = counted(seen.claims, "address", "addresses")
        yield Finding(Level.OK, "ledger", f"{claims} claimed in {seen.ledger}")
