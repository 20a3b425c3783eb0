"""The client's structs, which msgspec looks at when one is used first: that must not happen in two threads at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import locallb.kubernetes.api.client
from lightkube import KubeConfig
from lightkube.core.decoders import ListMetadata
from lightkube.models.meta_v1 import ObjectMeta, Status

GIVEN = {"clusters": [{"name": "a", "cluster": {}}], "users": [{"name": "a", "user": {}}],
         "contexts": [{"name": "a", "context": {"cluster": "a"}}]}
seen = []
sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_name) if event == "call" else None)
USE
sys.setprofile(None)
print(seen.count("get_class_annotations"))
"""


@pytest.mark.parametrize("use", ["ObjectMeta.from_dict({})", "Status.from_dict({})", "KubeConfig.from_dict(GIVEN)"])
def test_structs_were_looked_at_before_any_thread_uses_them(use: str) -> None:
    """Two events or refusals of an API at once, the first of a process, crashed it."""
    command = [sys.executable, "-c", SCRIPT.replace("USE", use)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "0\n"
