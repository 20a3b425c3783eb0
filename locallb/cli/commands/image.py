"""The command `image`: make an image of the installed Envoy, where no registry is reachable."""

from __future__ import annotations

import json

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.runtime import make_image
from locallb.runtimes.podman import PodmanContainers


def image(args: Arguments, out: Out) -> int:
    """Make it, and say how to use it."""
    made = make_image(PodmanContainers() if args.runtime == "podman" else Containers())
    if args.json:
        out.raw(json.dumps({"image": made}))
    else:
        out.line(f"Made {made}. To use it, write into the stack's configuration:")
        out.line(f"  local-lb:image: {made}")
    return 0
