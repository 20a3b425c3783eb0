"""Ingresses of an age, and the certificates that clients of them see."""

from __future__ import annotations

import socket
import ssl

from tests.support.certificates import Authority
from tests.support.ingress_objects import JsonObject


def old(day: int) -> JsonObject:
    """Make metadata of an Ingress of this age."""
    return {"creationTimestamp": f"2026-01-{day:02}T00:00:00Z"}


def shown(address: str, authority: Authority, name: str, host: str = "") -> tuple[str, str]:
    """Return the serial number of the certificate that clients see, and the status line's code and the body."""
    context = ssl.create_default_context(cafile=str(authority.own.chain))
    context.check_hostname = False
    with (
        socket.create_connection((address, 8443), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=name) as client,
    ):
        client.sendall(f"GET / HTTP/1.1\r\nhost: {host or name}\r\nconnection: close\r\n\r\n".encode())
        with client.makefile("rb") as answer:
            lines = answer.read().decode().split("\r\n")
            return str(
                (client.getpeercert() or {})["serialNumber"]
            ), f"{lines[0].split()[1]} {lines[-1].partition(' ')[0]}"
