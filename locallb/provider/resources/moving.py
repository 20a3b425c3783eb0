"""Takes a stack's proxies away from the state home in which they live, so that they can be made in another one.

Addresses stay claimed where all users share the ledger. Not here: where a stack belongs.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from locallb.ledger.ledger import Ledger
from locallb.model.errors import ClientError
from locallb.model.identities import Home
from locallb.model.naming import owner_from
from locallb.model.state_resource import ADDRESS, CONFIG, PROCESS, Resource
from locallb.runtimes.process import processes
from locallb.runtimes.process.processes import Process
from locallb.runtimes.process.stopping import stop_process
from locallb.storage import paths
from locallb.storage.proxy_directories import Proxies, is_id


def leave(resources: Iterable[Resource], home: Home, state_home: Path) -> int:
    """Stop the proxies of stack `home` below `state_home`, and remove what is theirs there; return how many ran.

    Raises ClientError if one can't be stopped: it is another user's.
    """
    known = list(resources)
    running = _running(known)
    for resource in running:
        stop_process(state_home / "proxies" / str(resource.inputs["proxy"]), _process(resource))
    for resource in known:
        with suppress(ClientError, OSError, KeyError, ValueError, TypeError):  # closed to this user, and harmless
            if resource.type == CONFIG:
                _remove(Proxies(state_home / "proxies"), str(resource.inputs["proxy"]), home)
            elif resource.type == ADDRESS:
                _release(resource)
    return len(running)


def pids(resources: Iterable[Resource]) -> list[int]:
    """List the processes of proxies that run."""
    return [_process(resource).pid for resource in _running(resources)]


def _running(resources: Iterable[Resource]) -> list[Resource]:
    return [resource for resource in resources if resource.type == PROCESS and _lives(_process(resource))]


def _process(resource: Resource) -> Process:
    pid = resource.outputs.get("pid")
    return Process(int(pid) if isinstance(pid, int | float) else 0, str(resource.outputs.get("started")))


def _lives(process: Process) -> bool:
    return process.pid > 0 and processes.is_alive(process)


def _remove(proxies: Proxies, proxy: str, home: Home) -> None:
    directory = proxies.find(proxy) if is_id(proxy) else None
    if directory and directory.owner and directory.owner.home == home:
        proxies.remove(directory.id)


def _release(resource: Resource) -> None:
    """Give up a claim in a ledger that doesn't count here."""
    ledger, owner = Path(str(resource.outputs["claim"])), resource.inputs["owner"]
    if ledger != paths.ledger_directory() and isinstance(owner, dict):
        Ledger(ledger).release(ip_address(str(resource.inputs["address"])), owner_from(owner))
