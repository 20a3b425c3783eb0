"""What a command loads, so that it starts at once: modules are counted, not milliseconds."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from functools import partial

import pytest

from tests.support.manifests import node, port, service
from tests.support.stages import Stage
from tests.support.watching import Watch, eventually

SCREEN = {"rich.console", "rich.live"}
"""What a terminal needs."""
SDK = {"pulumi", "grpc", "google.protobuf", "opentelemetry", "debugpy"}
CLIENTS = {"docker", "httpx2", "kubernetes", "prometheus_client", "pulumi_docker", "pulumi_kubernetes"}
REPORTS = {"locallb.report"}
CHANGING = {
    "locallb.components",
    "locallb.engine.engine",
    "locallb.engine.core.core",
    "locallb.provider",
    "locallb.watch",
}
LARGE = {"watchfiles", "webbrowser", "textual"}
STANDARD = {"ssl", "importlib.metadata", "concurrent.futures", "difflib"}
"""Parts of Python that take longer to load than a small plan takes to be made."""
LEAST = SCREEN | SDK | CLIENTS | REPORTS | CHANGING | LARGE | STANDARD
RUN = """
import json, sys
from locallb.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as leaving:
    code = leaving.code
sys.stderr.write("\\n" + json.dumps([code, sorted(sys.modules)]))
"""


def loaded_by(play: Stage, *terms: str) -> set[str]:
    """Run a command in a process of its own and return the modules that it has loaded, and the packages they are of."""
    command = [sys.executable, "-c", RUN, "-C", str(play.root), *terms]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert not code, done.stdout + done.stderr
    return {module.rsplit(".", cut)[0] for module in modules for cut in range(module.count(".") + 1)}


@pytest.mark.parametrize(
    "terms",
    [
        ["status"],
        ["status", "--json"],
        ["stack", "list"],
        ["completion", "bash"],
        ["--version"],
        ["host", "status"],
    ],
    ids=" ".join,
)
def test_read_only_commands_load_neither_engine_nor_sdk_nor_clients(play: Stage, terms: list[str]) -> None:
    """They plan and query the proxies without them."""
    play.write("web.yaml", node(), service("web", port(80, 30_080)))
    assert sorted(loaded_by(play, *terms) & LEAST) == []


@pytest.mark.envoy
@pytest.mark.parametrize("terms", [["up", "--yes"], ["refresh", "--yes"], ["destroy", "--yes"]], ids=" ".join)
def test_up_refresh_and_destroy_load_no_sdk_and_no_client(play: Stage, terms: list[str]) -> None:
    """The standard program isn't run, and the stack has only manifests and processes."""
    play.write("web.yaml", node(), service("web", port(8080, 30_080)))
    play.up()
    loaded = loaded_by(play, *terms)
    assert "locallb.engine.engine" in loaded
    clients = CLIENTS - ({"docker"} if "destroy" in terms else set())  # it looks for what the state doesn't know of
    assert sorted(loaded & (SDK | SCREEN | clients | REPORTS | {"locallb.components", "locallb.watch"})) == []


@pytest.mark.envoy
def test_preview_loads_neither_the_sdk_nor_clients(play: Stage) -> None:
    """The standard program isn't run for it."""
    play.write("web.yaml", node(), service("web", port(8080, 30_080)))
    loaded = loaded_by(play, "preview")
    assert "locallb.engine.engine" in loaded
    assert sorted(loaded & (SDK | SCREEN | CLIENTS | {"locallb.components", "locallb.watch"})) == []


def test_a_part_of_the_sdk_that_waits_is_there_when_it_is_used() -> None:
    """A program of one's own may do more than ours."""
    program = (
        "from locallb.engine.sdk_parts import PARTS, defer; defer(); import pulumi, sys;"
        " assert 'dill' not in sys.modules; assert PARTS <= set(sys.modules);"
        " print(pulumi.dynamic.ResourceProvider.__name__, pulumi.automation.LocalWorkspace.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["ResourceProvider", "LocalWorkspace"]


@pytest.mark.parametrize("traced", [False, True])
def test_tracing_is_loaded_where_a_trace_is_to_be_continued(monkeypatch: pytest.MonkeyPatch, *, traced: bool) -> None:
    """As the SDK does by itself: its calls are part of the trace that the environment names."""
    monkeypatch.delenv("TRACEPARENT", raising=False)
    if traced:
        monkeypatch.setenv("TRACEPARENT", f"00-{'1' * 32}-{'2' * 16}-01")
    program = (
        "from locallb.engine.sdk_parts import defer; defer(); import pulumi, sys; from opentelemetry import trace;"
        " print('opentelemetry.sdk' in sys.modules, type(trace.get_tracer_provider()).__module__)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == (["True", "opentelemetry.sdk.trace"] if traced else ["False", "opentelemetry.trace"])


def _converged(watch: Watch) -> bool:
    return "converged" in watch.reported()


@pytest.mark.envoy
@pytest.mark.slow
def test_a_watch_loads_its_live_page_only_where_it_is_asked_for(play: Stage) -> None:
    """No part of the page's room otherwise."""
    for terms, loads in (([], False), (["--page", "127.0.0.1:0"], True)):
        with closing(Watch(play, "--plain", *terms, program=[sys.executable, "-c", RUN])) as watch:
            eventually(partial(_converged, watch), watch)
            assert watch.stop() == 0
        code, modules = json.loads(watch.reported().splitlines()[-1])
        assert (code, any(module.startswith("locallb.cli.watching.page") for module in modules)) == (0, loads)
        assert "textual" not in modules


def test_nothing_that_serves_needs_the_extra_of_the_wheel() -> None:
    """Every module can be loaded without pulumi-kubernetes, but for the one that says which extra has it."""
    program = (
        "import importlib, pkgutil, sys; sys.modules['pulumi_kubernetes'] = None; import locallb\n"
        "for module in pkgutil.walk_packages(locallb.__path__, 'locallb.'):\n"
        "    try:\n"
        "        if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
        "    except Exception as error:\n"
        "        print(module.name, type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    (line,) = done.stdout.splitlines()
    assert line.startswith("locallb.components.in_cluster ClientError ")
    assert "local-lb[kubernetes]" in line
