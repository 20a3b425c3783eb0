"""The structs of answers and kubeconfigs, which msgspec looks at when one is used first: not in two threads at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import httpx2
from msgspec import convert
from locallb.kubernetes.api.kubeconfig import Credentials, Trust
from locallb.kubernetes.api import client
from locallb.kubernetes.api.connected import FailedAnswerError

observed = []
sys.setprofile(lambda frame, event, _: observed.append(frame.f_code.co_name) if event == "call" else None)
USE
sys.setprofile(None)
print(observed.count("get_class_annotations"))
"""


@pytest.mark.parametrize(
    "use",
    [
        'client._PAGES.decode(b\'{"items": [{}], "metadata": {"continue": "x"}}\')',
        "convert({}, Credentials), convert({}, Trust)",
        'FailedAnswerError(httpx2.Response(404, json={"code": 404}))',
    ],
)
def test_structs_were_looked_at_before_any_thread_uses_them(use: str) -> None:
    """Two refusals or lists of an API at once, the first of a process, crashed it."""
    command = [sys.executable, "-c", SCRIPT.replace("USE", use)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "0\n"
