"""Ports of Nodes, asked once: in which address families kube-proxy's health answers, and whether a Node is reached.

Not here: whether a Node is healthy, which the proxies ask all the time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from http.client import HTTPConnection, HTTPException
from itertools import islice, product

from locallb.model.identities import Family, IPAddress

TIMEOUT = 0.5
"""Seconds. A Node on this host answers within a millisecond."""
_AT_ONCE = 16
"""Addresses asked of one family: a few speak for all, as every Node of a cluster is set up alike."""
_ANSWERS = frozenset({200, 503})
"""Status codes of kube-proxy's health: healthy, or behind."""


def answering(addresses: Collection[IPAddress], port: int, path: str = "/healthz") -> frozenset[Family]:
    """Find the families in which at least one of `addresses` answers on `port`; waits only while none has."""
    requested = {
        family: [address for address in addresses if Family.of(address) is family][:_AT_ONCE] for family in Family
    }
    several = [address for addresses in requested.values() for address in addresses]
    families: set[Family] = set()
    if not several:
        return frozenset()
    pool = ThreadPoolExecutor(len(several))
    try:
        futures = {pool.submit(_answers, str(address), port, path): Family.of(address) for address in several}
        for future in as_completed(futures):
            if future.result():
                families.add(futures[future])
            if families == {family for family in Family if requested[family]}:
                break
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return frozenset(families)


_FEW, _TRIED = 4, 24
"""Addresses that are connected to, and connections."""


def any_reached(addresses: Iterable[IPAddress], ports: Iterable[int]) -> bool:
    """Return whether any of `addresses` takes or refuses a connection to any of `ports`: then packets come back."""
    tried = [*islice(product(ports, islice(addresses, _FEW)), _TRIED)]
    if not tried:
        return False
    pool = ThreadPoolExecutor(len(tried))
    try:
        several = [pool.submit(_reached, str(address), port) for port, address in tried]
        return any(future.result() for future in as_completed(several))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _reached(address: str, port: int) -> bool:
    connection = HTTPConnection(address, port, timeout=TIMEOUT)
    try:
        connection.connect()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    finally:
        connection.close()
    return True


def _answers(address: str, port: int, path: str) -> bool:
    connection = HTTPConnection(address, port, timeout=TIMEOUT)
    try:
        connection.request("GET", path)
        return connection.getresponse().status in _ANSWERS
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
