"""Access from inside a pod: the API as a kubeconfig that needs no file, and the pod's own namespace.

The token stays in its file, which the kubelet replaces now and again. Not here: requests.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from locallb import safe_files
from locallb.kubernetes.api.servers import KubeconfigError
from locallb.patterns import pattern

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts the service account's files into a pod."""
CONTEXT = "in-cluster"
NAMESPACE_VARIABLE, NAME_VARIABLE = "POD_NAMESPACE", "POD_NAME"
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
_FILES = {"authority": "ca.crt", "token": "token"}
_LARGEST = 1 << 12
_LABEL = pattern(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def kubeconfig() -> Path:
    """Return the path by which this pod's way to the API is called; there is no such file."""
    return ACCOUNT / "kubeconfig"


def is_pod() -> bool:
    """Return whether this process has the environment and the token of a pod."""
    return bool(os.environ.get(_HOST)) and (ACCOUNT / _FILES["token"]).is_file()


def unwritten(path: str) -> bytes | None:
    """Return the contents of this pod's kubeconfig; None for every other path, and outside of pods."""
    if path != str(kubeconfig()) or not is_pod():
        return None
    host, port = os.environ[_HOST], os.environ.get(_PORT) or "443"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    document = {
        "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": {"server": server, "certificate-authority": _FILES["authority"]}}],
        "users": [{"name": CONTEXT, "user": {"tokenFile": _FILES["token"]}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
    }
    return json.dumps(document).encode()


def namespace() -> str:
    """Return the namespace of this pod, by its variable or its own files; empty outside. Raises KubeError."""
    name = os.environ.get(NAMESPACE_VARIABLE, "")
    if not name:
        with suppress(OSError, UnicodeDecodeError):
            name = safe_files.read(ACCOUNT / "namespace", _LARGEST).decode("ascii").strip()
    if name and not _LABEL.fullmatch(name):
        raise KubeconfigError(
            f"{NAMESPACE_VARIABLE} is {name[:80]!r}, which can't be a namespace; take it from metadata.namespace",
        )
    return name
