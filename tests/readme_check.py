"""Ask every address of the example, over TCP and UDP, and check that its own backend answers (used by readme.sh)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request

EXPECTED = {
    ("shop", "web", 8080, "TCP"): "web http",
    ("shop", "web", 9000, "TCP"): "web admin",
    ("shop", "api", 8080, "TCP"): "api http",
    ("shop", "names", 5353, "TCP"): "names dns-tcp",
    ("shop", "names", 5353, "UDP"): "names dns-udp",
}
SECONDS = 5.0


def ask(address: str, port: int, protocol: str) -> str:
    """Send one request and give the answer."""
    if protocol == "TCP":
        with urllib.request.urlopen(f"http://{address}:{port}/", timeout=SECONDS) as answer:
            return str(answer.read().decode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(SECONDS)
        client.sendto(b"hello", (address, port))
        return client.recv(9000).decode()


def main() -> int:
    listed = subprocess.run([".venv/bin/locallb", "status", "--json"], check=True, capture_output=True, text=True)
    answers = {
        (service["namespace"], service["name"], port["port"], port["protocol"]): ask(
            service["addresses"][0], port["port"], port["protocol"]
        )
        for service in json.loads(listed.stdout)
        for port in service["ports"]
    }
    wrong = [key for key, terms in EXPECTED.items() if not answers.get(key, "").startswith(terms)]
    sys.stdout.write("".join(f"  {key}: {answer.strip()}\n" for key, answer in sorted(answers.items())))
    return 1 if wrong or answers.keys() != EXPECTED.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
