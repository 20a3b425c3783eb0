"""Counts of what fails, and of HTTP/2, against those of clients and backends."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
import pytest

from locallb.envoy.listeners import PATIENT_ATTEMPTS
from tests.figures.counted import reported
from tests.support.gateway_clients import service as node_port_service
from tests.support.gateway_objects import gateway, gateway_class, listener, route, rule
from tests.support.http_traffic import grpc_server
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage
from tests.support.waiting import becomes

pytestmark = pytest.mark.envoy

COUNT = 50
PORT = 8080


def closed_port() -> socket.socket:
    """Take a port at which nobody listens, and keep it."""
    retained = socket.socket()
    retained.bind(("127.0.0.1", 0))
    return retained


def is_cut(address: str) -> bool:
    """Connect and send; tell whether nothing came back but an end."""
    with suppress(ConnectionError), socket.create_connection((address, 8080), 10) as client:
        client.sendall(b"x\n")
        return client.recv(1) == b""
    return True


CLIENTS = 3


def settled(play: Stage) -> dict[str, Any]:
    """Return what is told once what `up` itself began has ended: its own connection is tried for a second, too."""
    readings = [reported(play, "web")]

    def is_settled() -> bool:
        time.sleep(0.5)
        readings.append(reported(play, "web"))
        return bool(readings[-1]["refused"] == readings[-2]["refused"])

    becomes(is_settled, "the count of refused connections stays as it is")
    return readings[-1]


def test_connections_that_no_backend_takes_are_counted_attempt_by_attempt() -> None:
    """As often as it is tried for a client, and none is counted as taken.

    One client after the other: Envoy gives up what several wait for at a moment by one attempt, and counts that once.
    """
    with stage() as play, closed_port() as dead:
        play.write("s.yaml", node(), service("web", port(8080, dead.getsockname()[1])))
        play.up()
        address, before = play.addresses()["n/web"], settled(play)
        assert all(is_cut(address) for _ in range(CLIENTS))
        after = settled(play)
        assert after["refused"] - before["refused"] == CLIENTS * PATIENT_ATTEMPTS
        assert (after["connections"], after["open"]) == (before["connections"], 0)


def test_calls_over_http2_are_counted_one_by_one_and_those_without_an_answer_as_failed() -> None:
    """However few connections carry them; a backend that is gone fails every call."""
    with stage() as play:
        with grpc_server("127.0.0.1") as backend:
            called = node_port_service("api", backend.port)
            called["spec"]["ports"][0]["appProtocol"] = "kubernetes.io/h2c"
            play.write("n.yaml", node(), called)
            play.write("g.yaml", gateway_class(), gateway(listener(port=PORT)), route(rule(), kind="GRPCRoute"))
            play.up()
            (address,) = play.addresses().values()
            channel = grpc.insecure_channel(f"{address}:{PORT}")
            log = channel.unary_unary("/test.Echo/Say", bytes, bytes)
            with ThreadPoolExecutor(4) as callers:
                answers = list(callers.map(log, [b"hello"] * COUNT))
            assert answers == [b"hello"] * COUNT
            row = reported(play, "web")
            assert (row["requests"], row["failed"]) == (COUNT, 0)
            assert row["connections"] < COUNT
        for _ in range(COUNT):
            with pytest.raises(grpc.RpcError):
                log(b"hello")
        channel.close()
        removed = reported(play, "web")
        assert removed["refused"] > row["refused"]
        assert removed["requests"] - removed["failed"] == COUNT
