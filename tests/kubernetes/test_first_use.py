"""The client's structs, which msgspec looks at when one is used first: that must not happen in two threads at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from locallb.kubernetes.api.client import SERVICE
from locallb.kubernetes.api.client import NAMESPACE, NODE, POD, SLICE
from locallb.sources.gardener import seed
from lightkube import KubeConfig
from lightkube.core.decoders import decode_list
from lightkube.models.meta_v1 import ObjectMeta, Status

GIVEN = {"clusters": [{"name": "a", "cluster": {}}], "users": [{"name": "a", "user": {}}],
         "contexts": [{"name": "a", "context": {"cluster": "a"}}]}
LIST = b'{"items": [{}], "metadata": {}}'
observed = []
sys.setprofile(lambda frame, event, _: observed.append(frame.f_code.co_name) if event == "call" else None)
USE
sys.setprofile(None)
print(observed.count("get_class_annotations"))
"""


LISTED = ("SERVICE", "SLICE", "NODE", "NAMESPACE", "POD", "seed._CLUSTER", "seed._RECORD")


@pytest.mark.parametrize(
    "use",
    [
        "ObjectMeta.from_dict({})",
        "Status.from_dict({})",
        "KubeConfig.from_dict(GIVEN)",
        *(f"decode_list(LIST, {kind})" for kind in LISTED),
    ],
)
def test_structs_were_looked_at_before_any_thread_uses_them(use: str) -> None:
    """Two events, refusals or lists of an API at once, the first of a process, crashed it."""
    command = [sys.executable, "-c", SCRIPT.replace("USE", use)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "0\n"
