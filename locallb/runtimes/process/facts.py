"""The processes of a stack on this host, and the host's limits for them."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.envoy import binary
from locallb.host.facts import host_facts
from locallb.model.identities import Home
from locallb.model.snapshot import HostFacts
from locallb.runtimes.process import processes
from locallb.storage.proxy_directories import PROXY_MARK, marked_owner


def read_facts(home: Home, settings: Settings, pids: Collection[int]) -> HostFacts:
    """Find out what this host allows. Raises ClientError."""
    ours = our_pids(home, pids)
    envoy = binary.installed().version
    return replace(host_facts(settings.pools, ours), envoy=envoy)


def our_pids(home: Home, existing: Collection[int]) -> set[int]:
    """Find the processes of a stack's proxies: those in its state, `existing`, and ones that a crash left out of it."""
    marked = processes.marked(PROXY_MARK).items()
    return {
        *existing,
        *(process.pid for process, mark in marked if (owner := marked_owner(mark)) and owner.home == home),
    }
