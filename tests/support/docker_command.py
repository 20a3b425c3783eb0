"""Docker by its command line, which can make containers that its Python client can't (`systempaths=unconfined`)."""

from __future__ import annotations

import subprocess


class DockerError(Exception):
    """Docker didn't do what it was told, in its own words."""


def docker(*terms: str, seconds: float = 120) -> str:
    """Run a command of Docker and return what it prints. Raises DockerError."""
    try:
        done = subprocess.run(["docker", *terms], check=False, capture_output=True, text=True, timeout=seconds)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise DockerError(f"docker {terms[0]}: {error}") from error
    if done.returncode:
        raise DockerError(f"docker {terms[0]}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()
