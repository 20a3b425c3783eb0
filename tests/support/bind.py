"""A real name server: BIND 9 as this user, on a port of 127.0.0.1, with zones that take updates."""

from __future__ import annotations

import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import dns.message
import dns.query
import dns.zone
import pytest

from locallb.model.identities import ZoneName

NAMED = shutil.which("named", path="/usr/sbin:/usr/bin:/sbin:/bin")
ZONE = ZoneName("lab.example")
_FILE = """$TTL 60
@ SOA ns.lab.example. root.lab.example. 1 60 60 60 1
@ NS ns
ns A 127.0.0.1
foreign A 192.0.2.1
mail MX 10 foreign
"""


def free_port() -> int:
    """Find a port that is free for both."""
    while True:
        with closing(socket.socket()) as tcp, closing(socket.socket(type=socket.SOCK_DGRAM)) as udp:
            tcp.bind(("127.0.0.1", 0))
            with suppress(OSError):
                udp.bind(tcp.getsockname())
                return int(tcp.getsockname()[1])


@dataclass
class Bind:
    """The server and its zone."""

    root: Path
    signed: bool = False
    zone: str = ZONE
    text: str = _FILE
    """The zone's file."""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.key = self.root / "update.key"
        secret = secrets.token_hex(32)
        self.key.write_text(f'key "lab" {{ algorithm hmac-sha256; secret "{_base64(secret)}"; }};\n')
        allowed = "key lab" if self.signed else "any"
        (self.root / "lab.zone").write_text(self.text)
        (self.root / "named.conf").write_text(
            f"""include "{self.key}";
            options {{ directory "{self.root}"; pid-file "{self.root}/pid"; session-keyfile "{self.root}/session.key";
              listen-on port {self.port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no;
              tcp-clients 500; dnssec-validation no; managed-keys-directory "{self.root}"; }};
            controls {{ }};
            zone "{self.zone}" {{ type primary; file "lab.zone"; allow-update {{ {allowed}; }}; notify no; }};
            """
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.root / "log").open("ab") as log:
            command = [str(NAMED), "-g", "-c", str(self.root / "named.conf")]
            self.process = subprocess.Popen(command, stderr=log, stdout=log)
        deadline = time.monotonic() + 120
        while True:
            with suppress(OSError, IndexError, dns.exception.DNSException):
                if self.serial():
                    return
            assert time.monotonic() < deadline, (self.root / "log").read_text()
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process:
            self.process.send_signal(number)
            self.process.wait(20)
            self.process = None

    def serial(self) -> int:
        answer = dns.query.tcp(dns.message.make_query(f"{self.zone}.", "SOA"), "127.0.0.1", 2, self.port)
        return int(next(iter(answer.answer[0])).to_text().split()[2])

    def records(self) -> dict[str, set[str]]:
        """Return the whole zone, SOA apart: types and values by name."""
        zone = dns.zone.Zone(f"{self.zone}.", relativize=False)
        dns.query.inbound_xfr("127.0.0.1", zone, port=self.port)
        found: dict[str, set[str]] = {}
        for name, ttl, rdata in zone.iterate_rdatas():
            kind = dns.rdatatype.to_text(rdata.rdtype)
            if kind != "SOA":
                found.setdefault(name.to_text(omit_final_dot=True), set()).add(f"{kind} {rdata.to_text()}")
                assert ttl
        return found

    def names(self) -> dict[str, set[str]]:
        """Return all but markers and what was there from the beginning."""
        present = {ZONE, *(f"{name}.{ZONE}" for name in ("ns", "foreign", "mail"))}
        return {
            name: values
            for name, values in self.records().items()
            if name not in present and not any(value.startswith("TXT") for value in values)
        }


def _base64(hexadecimal: str) -> str:
    import base64  # noqa: PLC0415 - once

    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


@contextmanager
def bind(*, signed: bool = False, zone: str = ZONE, text: str = _FILE) -> Iterator[Bind]:
    """Run it for a test, which is skipped where it isn't installed; CI installs it."""
    if NAMED is None:
        pytest.skip("there is no named here (Debian: apt install bind9)")
    root = Path(tempfile.mkdtemp(prefix="llb-bind-", dir="/tmp"))
    server = Bind(root, signed, zone, text)
    try:
        server.start()
        yield server
    finally:
        server.stop(signal.SIGKILL)
        shutil.rmtree(root, ignore_errors=True)
