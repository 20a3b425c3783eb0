"""The command `doctor`: examines this host and this stack, and prints the findings on one screen.

The exit code is 1 where something doesn't work. A fact that can't be determined becomes a finding, never an exception.

Not here: the findings that follow from the facts, and their remedies (`host.doctor`).
"""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit
from locallb.cli.session import Session
from locallb.config.settings import Pool, SettingsError
from locallb.dns.zones import is_wildcard
from locallb.engine.stack_lock import read_holders
from locallb.engine.state.checkpoint import check_state
from locallb.engine.state.errors import EngineError
from locallb.engine.state.resource import ResourceState
from locallb.envoy import binary
from locallb.envoy.admin import EnvoyAdmin
from locallb.host import capabilities, limits
from locallb.host.capabilities import is_wsl
from locallb.host.doctor import (
    Finding,
    FindingLevel,
    HostInspection,
    ObservedLock,
    ObservedName,
    ObservedProxy,
    ProxyLimits,
    examine,
    free_addresses,
    headroom,
)
from locallb.host.facts import host_facts, inotify_limit
from locallb.ledger.ledger import Ledger
from locallb.leftovers import claim_key, claim_keys_in, leftovers, relays_in, routes_in
from locallb.model.desired import CONFIG, PROCESS
from locallb.model.errors import ClientError
from locallb.model.snapshot import Claim, HostFacts
from locallb.model.texts import counted
from locallb.planning.pool_routes import pool_routes
from locallb.runtimes import processes
from locallb.runtimes.runtime import runtime
from locallb.sources import SourceError
from locallb.sources.snapshot import ReadingAndPlan
from locallb.storage import files, paths
from locallb.storage.proxy_directories import PROXY_MARK
from locallb.threads import addresses_of, in_parallel

AT_ONCE = 16
FAILURES = (ClientError, EngineError, SettingsError, SourceError, OSError)
_FEW = 100
"""inotify instances below which it matters who has the others."""
_PROBED = 512
"""inotify instances that are tried; of more it is enough to know that there are more."""
_ZONE_TIMEOUT = 3.0
"""Seconds for the resolver where it asks a server of a zone, which may be away."""
_RESOLVER_TIMEOUT = 1.0
"""Seconds that this host's resolver has for one name."""
Found = TypeVar("Found")
Otherwise = TypeVar("Otherwise")


class Failures(Struct):
    """What could not be looked at, collected."""

    findings: list[Finding]

    def guard(
        self, topic: str, inspect: Callable[[], Found], otherwise: Otherwise, remedy: str = ""
    ) -> Found | Otherwise:
        """Look; where that fails, note why and go on."""
        try:
            return inspect()
        except FAILURES as error:
            self.findings += [Finding(FindingLevel.PROBLEM, topic, line, remedy) for line in str(error).splitlines()]
            return otherwise


def inspect(directory: Path, stack: str) -> HostInspection:
    failures = Failures([])
    session = _session(directory, stack, failures)
    pools = failures.guard("stack", lambda: session.settings.pools, ()) if session else ()
    here = session if session and failures.guard("stack", lambda: _belongs_here(session), otherwise=False) else None
    plan = failures.guard("sources", here.plan, None) if here and pools else None
    host = plan[0].snapshot.host if plan else failures.guard("host", lambda: _host(pools, session), HostFacts())
    ledger = failures.guard("ledger", lambda: Ledger(paths.ledger_directory()), None)
    claims = failures.guard("ledger", ledger.claims, ()) if ledger else ()
    envoy, envoy_problem = _envoy()
    observed = HostInspection(
        python=sys.version_info[:2],
        user=_user(),
        envoy=envoy,
        envoy_problem=envoy_problem,
        host=host,
        limits=_limits(pools, host, claims),
        pools=pools,
        routes=pool_routes(pools, host.addresses),
        ledger=str(ledger.directory) if ledger else "",
        shared_ledger=_shared(),
        claims=len(claims),
        ledger_problems=failures.guard("ledger", ledger.problems, ()) if ledger else (),
        ledger_keepers=failures.guard("ledger", ledger.keepers, ()) if ledger else (),
        docker=capabilities.state(capabilities.docker_path()),
        docker_context_problem=capabilities.docker_context_problem(),
        docker_elsewhere=capabilities.docker_elsewhere(),
        podman=tuple(capabilities.podman_sockets()),
        wsl=is_wsl(os.uname().release),
        mapped=bool(session and pools and session.settings.port_mapping),
        disk_free=failures.guard("disk", lambda: limits.free_disk(paths.state_home()), limits.PLENTY),
    )
    if session and pools:
        with suppress(ClientError):  # the plan has reported an engine that doesn't answer
            image, exists = runtime(session.settings.runtime).image(session.settings, envoy)
            observed = replace(observed, image=image, lacks_image=not exists)
    if plan:
        local = _local_name(plan)
        known = bool(local) and any(ip_address(each).is_loopback for each in addresses_of(local, _RESOLVER_TIMEOUT))
        observed = replace(observed, names=tuple(_names(plan)), local_name=local, knows_local_names=known)
    observed = failures.guard("authority", lambda: _with_authority(observed), observed)
    if here:
        observed = _with_stack(observed, here, plan, claims, failures)
    return replace(observed, extra=tuple(failures.findings))


def _session(directory: Path, stack: str, failures: Failures) -> Session | None:
    """Open the stack; a missing project is only noted."""
    if directory == paths.data_home() and not directory.exists():
        text = f"there is no project here and none in {directory}"
        failures.findings.append(Finding(FindingLevel.NOTE, "stack", text, "`locallb watch` begins one"))
        return None
    return failures.guard("stack", lambda: Session.open(directory, stack), None)


def _names(plan: ReadingAndPlan) -> Iterator[ObservedName]:
    """Ask for one name of each zone that has any."""
    names = (name for placement in plan[1].placements for name in placement.names)
    first = {name.zone: name.name for name in names if not is_wildcard(name.name)}
    if first:
        from locallb.dns.rfc2136 import addresses_at_server  # noqa: PLC0415 - for stacks with zones only

        for zone, name in first.items():
            here = frozenset(addresses_of(name, _ZONE_TIMEOUT))
            yield ObservedName(name, str(zone.server), addresses_at_server(name, zone), here)


def _local_name(plan: ReadingAndPlan) -> str:
    """Return the first name below `localhost` that is planned; empty without any."""
    urls = (each.url for placement in plan[1].placements for each in placement.local_urls)
    return next((urlsplit(url).hostname or "" for url in urls), "")


def _with_authority(observed: HostInspection) -> HostInspection:
    """Find out which stores trust this user's own authority, where there is one."""
    from locallb.certificates import store, trust_stores  # noqa: PLC0415 - load cryptography

    existing = store.find()
    if not existing:
        return observed
    doubting = trust_stores.doubting(existing.observed.fingerprint)
    return replace(observed, authority=existing.observed.name, doubting=doubting)


def _belongs_here(session: Session) -> bool:
    """Check that the stack is to be looked at from here. Raises SourceError, ClientError."""
    session.require_home()
    return True


def _host(pools: tuple[Pool, ...], session: Session | None) -> HostFacts:
    """Examine the host where no plan did."""
    strict = bool(session and pools and session.settings.publishes)
    return host_facts(pools, [process.pid for process in processes.marked(PROXY_MARK)], strict=strict)


def _with_stack(
    observed: HostInspection,
    session: Session,
    plan: ReadingAndPlan | None,
    claims: tuple[Claim, ...],
    failures: Failures,
) -> HostInspection:
    """Examine the stack: its state, lock, proxies and sources. `claims` are the ledger's."""
    path = session.project.state_file(session.stack)
    state_problems = failures.guard("state", lambda: check_state(path), ())
    remedy = "`locallb state restore` goes back to the last good state"
    existing, under_way = failures.guard("state", session.resources_and_under_way, ((), ()), remedy)
    wanted = failures.guard("state", lambda: claim_keys_in(existing), frozenset())
    missing, unread = wanted - set(map(claim_key, claims)), {str(c.address): c.problem for c in claims if c.unread}
    complaints = (
        tuple(text for text in plan[0].complaints if not text.startswith(tuple(unread.values()))) if plan else ()
    )
    return replace(
        observed,
        source_problems=complaints,
        source_notices=(*plan[0].notices, *plan[1].notices) if plan else (),
        straight=plan[1].straight if plan else (),
        left_out=plan[1].left_out if plan else (),
        sources=len(session.settings.sources) if plan else 0,
        services=len(plan[1].placements) + len(plan[1].rejections) if plan else 0,
        proxies=_proxies(existing),
        unclaimed=tuple(sorted({claim.name for claim in missing if claim.name.partition("/")[0] not in unread})),
        leftovers=failures.guard("ledger", lambda: _leftovers(session, existing, under_way, claims), ()),
        state=f"{counted(len(existing), 'resource')} in {path}" if path.exists() else f"nothing deployed yet ({path})",
        state_problems=state_problems,
        locks=failures.guard("state", lambda: _locks(session), ()),
    )


def _envoy() -> tuple[str, str]:
    try:
        return binary.installed().version, ""
    except ClientError as error:
        return "", str(error)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _limits(pools: tuple[Pool, ...], host: HostFacts, claims: Iterable[Claim]) -> ProxyLimits:
    limit = inotify_limit()
    free = limits.available(min(limit, _PROBED))
    return ProxyLimits(
        watches=free if free < _PROBED else max(free, host.watches),
        watch_limit=limit,
        memory=limits.free_memory(),
        tasks=limits.free_tasks(),
        addresses=free_addresses(pools, host, claims) if pools else limits.PLENTY,
        files=limits.files_each(),
        watch_holders=limits.largest_holders() if free < _FEW else (),
    )


def _shared() -> str:
    if not paths.SHARED_LEDGER.is_dir():
        return ""
    return "usable" if os.access(paths.SHARED_LEDGER, os.W_OK | os.X_OK) else "closed"


def _proxies(existing: Sequence[ResourceState]) -> tuple[ObservedProxy, ...]:
    runs = {str(resource.id): resource for resource in existing if resource.type == PROCESS}
    configs = [resource for resource in existing if resource.type == CONFIG]
    configs.sort(key=lambda config: str(config.inputs.get("name")))
    return tuple(in_parallel(lambda config: _proxy(config, runs.get(str(config.id))), configs, AT_ONCE))


def _proxy(config: ResourceState, run: ResourceState | None) -> ObservedProxy:
    """Compare a proxy of the state with what exists."""
    name, wanted = str(config.inputs.get("name", config.id)), config.inputs.get("files")
    path = paths.proxies_root() / str(config.id)
    existing = run.outputs if run else {}
    pid = existing.get("pid")
    alive = isinstance(pid, int | float) and processes.is_alive(
        processes.Process(int(pid), str(existing.get("started")))
    )
    retained = isinstance(wanted, dict) and all(_read(path / file) == text for file, text in wanted.items())
    shared = bool(config.inputs.get("shared"))  # in a container, whose process only Docker knows
    answers = (shared or alive) and path.is_dir() and EnvoyAdmin(path).answers()
    return ObservedProxy(name, answers if shared else alive, answers, str(existing.get("version", "")), retained)


def _read(path: Path) -> str | None:
    try:
        return files.read_shared(path)
    except ClientError:
        return None


def _leftovers(
    session: Session, existing: Iterable[ResourceState], under_way: Iterable[ResourceState], claims: tuple[Claim, ...]
) -> tuple[str, ...]:
    proxies = {str(resource.id) for resource in existing if resource.type == CONFIG}
    claimed = claim_keys_in((*existing, *under_way))
    remaining = leftovers(session.home, proxies, claimed, routes_in(existing), relays_in(existing), claims)
    return tuple(map(str, remaining))


def _locks(session: Session) -> tuple[ObservedLock, ...]:
    folder = session.project.backend / ".pulumi/locks/organization" / session.project.name / session.stack
    return tuple(
        ObservedLock(f"{holder.username}@{holder.hostname} (pid {holder.pid})", str(holder.path), holder.is_removed())
        for holder in read_holders(folder)
    )


STYLES = {
    FindingLevel.OK: "green",
    FindingLevel.NOTE: "",
    FindingLevel.WARNING: "yellow",
    FindingLevel.PROBLEM: "bold red",
}


def doctor(args: Arguments, out: Out) -> int:
    """Examine the host and the stack, and print the findings."""
    observed = inspect(args.directory, args.stack)
    findings = examine(observed)
    healthy = not any(finding.level is FindingLevel.PROBLEM for finding in findings)
    if args.json:
        room = headroom(observed.limits)
        document = {
            "healthy": healthy,
            "headroom": {"proxies": room.proxies, "limited_by": room.limited_by},
            "findings": [_fields(finding) for finding in findings],
        }
        out.raw(json.dumps(document, indent=2))
    else:
        _print(findings, out)
    return Exit.OK if healthy else Exit.FAILED


def _print(findings: tuple[Finding, ...], out: Out) -> None:
    for finding in findings:
        out.line((f"{finding.level:<8} ", STYLES[finding.level]), (f"{finding.topic:<9} ", "bold"), finding.text)
        if finding.remedy:
            out.line(f"{'':19}→ {finding.remedy}")


def _fields(finding: Finding) -> dict[str, str]:
    return {"level": str(finding.level), "topic": finding.topic, "text": finding.text, "remedy": finding.remedy}
