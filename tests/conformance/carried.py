"""`python -m tests.conformance.carried` writes the definitions that local-lb carries, from the module in go.mod.

Both channels, as they were published: nothing is left out and nothing is said otherwise. Not here: reading them.
"""

from __future__ import annotations

import json
import lzma
import subprocess
from pathlib import Path
from typing import Any

import yaml

from locallb.gateway.crds import FILE
from tests.conformance.ready import API, MODULE
from tests.support.cluster_build import CHECKOUT, environment, go, pinned

DEFINITION = "CustomResourceDefinition"
CHANNELS = ("standard", "experimental")


def published() -> dict[str, Any]:
    """Read them from the module, which Go checks against go.sum."""
    version = pinned(MODULE, API)
    command = [go(), "mod", "download", "-json", f"{API}@{version}"]
    done = subprocess.run(command, check=True, cwd=MODULE, env=environment(), capture_output=True, text=True)
    place = Path(json.loads(done.stdout)["Dir"]) / "config" / "crd"
    return {"version": version, "channels": {channel: _documents(place / channel) for channel in CHANNELS}}


def _documents(place: Path) -> list[dict[str, Any]]:
    files = sorted(path for path in place.glob("*.yaml") if path.name != "kustomization.yaml")
    found = [document for path in files for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    retained = [document for document in found if document]
    return sorted(retained, key=lambda document: document["kind"] != DEFINITION)


def main() -> None:
    text = json.dumps(published(), separators=(",", ":"), sort_keys=True)
    packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
    (CHECKOUT / "locallb" / "gateway" / FILE).write_bytes(packed)


if __name__ == "__main__":
    main()
