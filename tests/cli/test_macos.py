"""On macOS nothing is served: commands say so before they begin anything, and those that need no proxy work.

A Mac as far as Python shows one: its `sys.platform`, without what Python has on Linux only. No test has a real one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from locallb.cli.run import COMMANDS, ON_MACOS, WITHOUT_STACK

ROOT = Path(__file__).parents[2]
MAC = """
import os, signal, socket, sys, types
import asyncio, subprocess  # Python's own are as they are on this host
sys.platform = "darwin"
sys.modules["_scproxy"] = proxies = types.ModuleType("_scproxy")
proxies._get_proxy_settings = proxies._get_proxies = dict
for module, names in (
    (os, "pidfd_open eventfd sched_getaffinity sched_setaffinity setns unshare memfd_create getresuid O_PATH"),
    (socket, "AF_NETLINK AF_PACKET SOCK_CLOEXEC SOCK_NONBLOCK SO_MARK SO_PEERCRED TCP_KEEPIDLE TCP_USER_TIMEOUT"),
    (signal, "pidfd_send_signal sigtimedwait sigwaitinfo SIGRTMIN SIGRTMAX SIGPWR SIGPOLL"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
"""
COMMAND = "from locallb.cli import main; sys.exit(main())"
EACH = """
from locallb.cli import main
for terms in sys.argv[1:]:
    print(main(terms.split()))
"""
MODULES = """
import importlib, pkgutil, locallb
for module in pkgutil.walk_packages(locallb.__path__, "locallb."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def run(home: Path, text: str, *terms: str) -> subprocess.CompletedProcess[str]:
    """Run a text as Python on a Mac, in an empty directory of somebody who has nothing yet."""
    directory = home / "empty"
    directory.mkdir(exist_ok=True)
    path = {"PATH": f"{home}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", MAC + text, *terms], cwd=directory, check=False, capture_output=True, text=True,
        timeout=120, env={"HOME": str(home), **path},
    )  # fmt: skip


def test_commands_that_need_linux_are_refused_on_macos(tmp_path: Path) -> None:
    """Which leads to a Linux machine, and nothing was begun."""
    further = {
        "fault": "fault web --refuse 10%",
        "drain": "drain web",
        "state": "state check",
        "plugin": "plugin install",
        "wait": "wait web",
        "curl": "curl web",
        "explain": "explain http://shop.test/",
        "service": "service status",
    }
    refused = [further.get(command, command) for command in sorted({*COMMANDS, *WITHOUT_STACK} - ON_MACOS)]
    done = run(tmp_path, EACH, *refused)
    assert done.stdout.split() == ["1"] * len(refused), done
    (sentence,) = set(done.stderr.splitlines())
    assert sentence.startswith("error: local-lb doesn't serve on macOS: run it in a Linux machine")
    assert "local-lb:portMapping: loopback" in sentence
    assert list(tmp_path.rglob("*")) == [tmp_path / "empty"]


def test_a_project_can_be_begun_and_the_host_prepared(tmp_path: Path) -> None:
    """`init`, pages, and the aliases of lo0 that pools need, which are only printed."""
    (tmp_path / "ifconfig").write_text("#!/bin/sh\necho '\tinet 127.0.0.1 netmask 0xff000000'\n")
    (tmp_path / "ifconfig").chmod(0o755)
    assert run(tmp_path, COMMAND, "init", "shop").returncode == 0
    done = run(tmp_path, COMMAND, "-C", "shop", "host", "setup")
    assert "ifconfig lo0 inet alias 127.77.0.1 netmask 255.255.255.255" in done.stdout, done
    assert run(tmp_path, COMMAND, "-C", "shop", "stack", "list").returncode == 0
    assert "macOS" in run(tmp_path, COMMAND, "help", "kind").stdout


def test_a_preview_for_reviewers_needs_no_linux(tmp_path: Path) -> None:
    """It compares texts, and looks at no host."""
    assert run(tmp_path, COMMAND, "init", "shop").returncode == 0
    (tmp_path / "empty/shop/manifests").mkdir()
    (tmp_path / "empty/shop/manifests/web.yaml").write_text(
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: LoadBalancer, ports: [{port: 80}]}}"
    )
    done = run(tmp_path, COMMAND, "-C", "shop", "preview", "--against", ".", "--format", "markdown")
    assert done.returncode == 0, done


def test_every_module_can_be_loaded(tmp_path: Path) -> None:
    """So that whatever comes first is a sentence."""
    done = run(tmp_path, MODULES)
    assert (done.returncode, done.stderr) == (0, "")
