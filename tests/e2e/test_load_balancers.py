"""A program that declares `LoadBalancers` with arguments of its own, by the embedded engine."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from locallb.program import LoadBalancers
from tests.support.backends import Backend, ask
from tests.support.manifests import node, port, service
from tests.support.stages import CHECKOUT, Stage

PROGRAM = """\
import pulumi

from locallb.program import LoadBalancers

served = LoadBalancers(
    {name!r},
    sources=pulumi.Output.from_input([{{"manifests": "manifests", "name": "c"}}]),
    ingress=pulumi.Output.from_input({{"class_": "local-lb"}}),
    pools=[{{"name": "own", "addresses": [{pool!r}]}}],
)
after = pulumi.ResourceOptions(depends_on=served.services["n/web"])
last = pulumi.ComponentResource("my:index:Last", "last", {{}}, after)
pulumi.export("addresses", served.addresses)
pulumi.export("urls", served.urls)
pulumi.export("hostnames", served.hostnames)
pulumi.export("ports", served.ports)
"""


def declared(play: Stage, text: str = PROGRAM, name: str = "all") -> None:
    """Write the program; the stack's file has none of our keys."""
    (play.root / "stacks/Pulumi.dev.yaml").write_text("config: {}\n")
    (play.root / "__main__.py").write_text(text.format(name=name, pool=f"{play.at(0)}/27"))


def state(play: Stage) -> list[dict[str, Any]]:
    document = json.loads((play.root / ".state/.pulumi/stacks/local-lb/dev.json").read_text())
    resources: list[dict[str, Any]] = document["checkpoint"]["latest"].get("resources", [])
    return resources


def urns(play: Stage) -> set[str]:
    return {str(each["urn"]) for each in state(play) if str(each["type"]).startswith("locallb:index:")} - {
        f"urn:pulumi:dev::local-lb::locallb:index:LoadBalancers::{name}" for name in ("all", "other")
    }


def outputs(play: Stage) -> object:
    return state(play)[0]["outputs"]


LATER = """
if pulumi.runtime.is_dry_run():
    LoadBalancers = functools.partial(LoadBalancers, pins=pulumi.Output.from_input(UNKNOWN))
"""


@pytest.mark.envoy
def test_a_preview_with_an_argument_that_is_not_known_yet_deletes_nothing(
    play: Stage, backend: Callable[..., Backend]
) -> None:
    """At first there is nothing to show; later what the last update was given stands for it."""
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    text = PROGRAM.replace(
        "import pulumi\n", "import functools\n\nimport pulumi\nfrom pulumi.output import UNKNOWN\n", 1
    )
    declared(
        play,
        text.replace("\nserved", f"{LATER.replace('{', '{{')}\nserved")
        .replace("after = pulumi", "#")
        .replace("last = pulumi", "#"),
    )
    done = play.run("preview")
    assert done.code == 0, done.err
    assert "what it will serve can't be shown" in done.out + done.err
    play.up()
    done = play.run("preview", "--json")
    assert done.code == 0, done.err
    assert done.json["changes"].get("delete", 0) == 0, done.json


@pytest.mark.envoy
def test_a_program_declares_load_balancers_and_depends_on_them(play: Stage, backend: Callable[..., Backend]) -> None:
    """Its outputs, commands that go by its arguments, and what depends on one Service; a second run changes nothing."""
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    declared(play)
    done = play.run("up", "--yes")
    assert done.code == 0, done.out + done.err
    at = play.addresses()["n/web"]
    assert at.startswith(f"{play.prefix}.")
    assert ask(at, 8080) == "web: hello"
    assert outputs(play) == {
        "addresses": {"n/web": [at]},
        "urls": {"n/web": [f"http://{at}:8080/"]},
        "hostnames": {"n/web": []},
        "ports": {"n/web": ["8080/TCP"]},
    }
    (last,) = (each for each in state(play) if each["urn"] == "urn:pulumi:dev::local-lb::my:index:Last::last")
    assert any("Reachable::c/n/web" in urn for urn in last["dependencies"])
    done = play.run("up", "--yes", "--expect-no-changes")
    assert done.code == 0, done.out + done.err


@pytest.mark.envoy
def test_urns_do_not_depend_on_who_declares(play: Stage, backend: Callable[..., Backend]) -> None:
    """From serve() to the component, to one of another name, and back: the same processes go on serving."""
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    standard = (play.root / "__main__.py").read_text()
    play.up()
    before, processes = urns(play), play.pids()
    for name in ("all", "other"):
        declared(play, name=name)
        play.up()
        assert (urns(play), play.pids()) == (before, processes)
    (play.root / "__main__.py").write_text(standard.replace("reading, plan = serve()", "made = serve()\nmade.urls"))
    play.configure()
    play.up()
    assert (urns(play), play.pids()) == (before, processes)


CONSTRUCTED = """\
import asyncio
from pathlib import Path

import pulumi
from pulumi.provider.experimental import provider as protocol

from locallb.package.construct import make_package
from locallb.resources.wire import plain, wrapped


async def construct(package, name):
    pools = [{{"name": "own", "addresses": [{pool!r}]}}]
    inputs = wrapped({{"sources": [{{"manifests": name, "name": name}}], "pools": pools}})
    request = protocol.ConstructRequest("locallb:index:LoadBalancers", name, inputs, pulumi.ResourceOptions())
    return plain((await package.construct(request)).state)["addresses"]


async def every():
    package = make_package(Path.cwd())
    return await asyncio.gather(*(construct(package, name) for name in {names!r}))


async def main():
    for name, addresses in zip({names!r}, await every()):
        pulumi.export(name, addresses)


pulumi.export("done", pulumi.Output.from_input(main()))
"""
TWO = """\
import pulumi

from locallb.program import LoadBalancers

pools = [{{"name": "own", "addresses": [{pool!r}]}}]
for name in {names!r}:
    pulumi.export(name, LoadBalancers(name, sources=[{{"manifests": name, "name": name}}], pools=pools).addresses)
"""


WAITING = """\
import pulumi

from locallb.program import LoadBalancers

pools = [{{"name": "own", "addresses": [{pool!r}]}}]


def declared(name, manifests):
    return LoadBalancers(name, sources=[{{"manifests": manifests, "name": name}}], pools=pools)


a = declared("a", "a")
declared("d", a.urn.apply(lambda _: "d"))
declared("b", "b")
declared("c", "c")
"""


def in_parts(play: Stage, text: str, *names: str) -> dict[str, str]:
    """Run a program with a component for each of these directories; return the addresses that it exports."""
    (play.root / "__main__.py").write_text(text.format(names=names, pool=f"{play.at(0)}/30"))
    play.up()
    return {name: served["n/web"][0] for name, served in state(play)[0]["outputs"].items() if served}


@pytest.mark.envoy
@pytest.mark.parametrize("text", [TWO, CONSTRUCTED], ids=["in Python", "by the package"])
def test_a_program_has_several_components(play: Stage, backend: Callable[..., Backend], text: str) -> None:
    """Each serves its own at addresses of its own; commands show all, and one that is removed leaves the others."""
    (play.root / "stacks/Pulumi.dev.yaml").write_text("config: {}\n")
    names = ("a", "b", "c")
    for name in names:
        place = play.root / name
        place.mkdir()
        play.write("web.yaml", node(), service("web", port(8080, backend(name).port)))
        (play.manifests / "web.yaml").rename(place / "web.yaml")
    (play.root / "__main__.py").write_text(text.format(names=names, pool=f"{play.at(0)}/30"))
    done = play.run("preview", "--json")
    foreseen = {row["cluster"]: row["addresses"][0] for row in done.json["services"]}
    at = in_parts(play, text, *names)
    assert at == foreseen
    assert len({*at.values()}) == len(names)
    assert {name: ask(address, 8080) for name, address in at.items()} == {name: f"{name}: hello" for name in names}
    rows = play.run("status", "--json").json
    assert {row["cluster"]: row["addresses"][0] for row in rows} == at
    done = play.run("up", "--yes", "--expect-no-changes")
    assert done.code == 0, done.out + done.err
    for name in reversed(names[1:]):
        (play.root / name / "web.yaml").unlink()
        (play.root / name).rmdir()
        del at[name]
        assert in_parts(play, text, *at) == at
        assert {row["cluster"] for row in play.run("status", "--json").json} == at.keys()
    assert ask(at["a"], 8080) == "a: hello"


def test_whichever_is_registered_first_a_preview_and_its_update_choose_the_same_addresses(
    play: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four in a pool with four addresses, one of which waits for another: what is answered late has its turn."""
    (play.root / "stacks/Pulumi.dev.yaml").write_text("config: {}\n")
    for name in ("a", "b", "c", "d"):
        (play.root / name).mkdir()
        play.write("web.yaml", node(), service("web", port(8080, 30080)))
        (play.manifests / "web.yaml").rename(play.root / name / "web.yaml")
    (play.root / "__main__.py").write_text(WAITING.format(pool=f"{play.at(0)}/30"))
    current, late = LoadBalancers._current, {"a", "b"}

    async def delayed(self: LoadBalancers) -> object:
        await asyncio.sleep(0.3 if self._name in late else 0)
        return await current(self)

    monkeypatch.setattr(LoadBalancers, "_current", delayed)
    chosen = []
    for delays in ({"a", "b"}, {"c", "d"}, {"b"}):
        late.clear()
        late.update(delays)
        done = play.run("preview", "--json")
        chosen.append({row["cluster"]: row["addresses"][0] for row in done.json["services"]})
    assert len({*chosen[0].values()}) == len(chosen[0])
    assert chosen == [chosen[0]] * 3


@pytest.mark.envoy
def test_renamed_and_removed_components_are_what_commands_show(play: Stage, backend: Callable[..., Backend]) -> None:
    """Also where the run that renames one breaks off; once the last one is removed nothing is left to serve."""
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    text = PROGRAM.replace("after = pulumi", "#").replace("last = pulumi", "#")
    declared(play, text)
    play.up()
    declared(play, f"{text}served.urls.apply(lambda urls: urls['none'])\n", "other")
    assert play.run("up", "--yes").code == 1
    (row,) = play.run("status", "--json").json
    assert row["state"] == "serving"
    (play.root / "__main__.py").write_text("import pulumi\n\npulumi.export('nothing', 0)\n")
    done = play.run("up", "--yes", "--json")
    assert done.code == 0, done.err
    assert done.json["services"] == play.run("status", "--json").json == []
    declared(play, text)
    play.up()
    (row,) = play.run("status", "--json").json
    assert row["state"] == "serving"


SAME_NAME = """\
below = pulumi.ResourceOptions(parent=pulumi.ComponentResource("my:index:Part", "part"))
LoadBalancers("all", below, sources=[dict(manifests="manifests", name="d")])
"""


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            'LoadBalancers("more", sources=[dict(manifests="manifests", name="c")], ingress=dict(class_="local-lb"))',
            "both have the source c: leave it to one of them",
        ),
        (
            SAME_NAME,
            "two LoadBalancers have the name 'all', also if under other parents: rename one",
        ),
        (
            "from locallb.program import serve; serve()",
            "LoadBalancers 'all' declares what is served already, so serve() can't",
        ),
        ('served.services["n/none"].apply(print)', "there is no load balancer 'n/none': nothing is served"),
    ],
)
def test_a_mistake_of_the_program_is_one_sentence(play: Stage, more: str, sentence: str) -> None:
    """Two components of one cluster or name, another declaration beside one, and a Service that isn't there."""
    declared(play, PROGRAM.replace("after = pulumi", f"{more}\n#").replace("last = pulumi", "#"))
    done = play.run("up", "--yes")
    assert done.code == 1
    assert sentence in " ".join(done.err.split())
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ('pools=[{"name": "p", "addresses": ["127.77.0"]}]', "local-lb:pools[0].addresses[0]"),
        ('gateway_clases=["a"]', "local-lb:gateway_clases: no such key; did you mean gatewayClasses?"),
        ('metrics=pulumi.Output.secret("127.0.0.1:9477")', "property arguments: a secret"),
    ],
)
def test_a_wrong_argument_is_one_sentence(play: Stage, argument: str, sentence: str) -> None:
    """As of the configuration: the key, the value and the remedy."""
    (play.root / "stacks/Pulumi.dev.yaml").write_text("config: {}\n")
    source = 'sources=[{"manifests": "manifests", "name": "c"}]'
    (play.root / "__main__.py").write_text(
        f"import pulumi\nfrom locallb.program import LoadBalancers\nLoadBalancers('lb', {source}, {argument})\n"
    )
    done = play.run("up", "--yes")
    assert done.code == 1
    assert sentence in " ".join(done.err.split())


@pytest.fixture
def example(play: Stage) -> Stage:
    """Return a project with the example's program, and the shop's manifests where it expects them."""
    text = (CHECKOUT / "examples/program/__main__.py").read_text()
    (play.root / "__main__.py").write_text(
        text.replace("../shop/manifests", "manifests").replace("127.77.1", play.prefix)
    )
    (play.root / "stacks/Pulumi.dev.yaml").write_text("config: {}\n")
    shutil.copytree(CHECKOUT / "examples/shop/manifests", play.manifests, dirs_exist_ok=True)
    shutil.copy(CHECKOUT / "examples/shop/nodes.yaml", play.manifests)
    return play


@pytest.mark.envoy
def test_the_example_serves_and_says_where(example: Stage) -> None:
    """In a preview as well; and it is gone at the end."""
    done = example.run("preview")
    assert done.code == 0, done.out + done.err
    done = example.run("up", "--yes")
    assert done.code == 0, done.out + done.err
    assert state(example)[0]["outputs"]["notice"] == f"The shop is open: http://{example.at(1)}:8080/"
    done = example.run("destroy", "--yes")
    assert done.code == 0, done.out + done.err
    assert not example.pids()


@pytest.mark.slow
def test_the_example_is_typed_strictly(tmp_path: Path) -> None:
    """In a project of a user's: what it imports of ours has types, and a wrong argument is found."""
    program = tmp_path / "__main__.py"
    text = (CHECKOUT / "examples/program/__main__.py").read_text()
    program.write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)]
    found = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    program.write_text(text.replace('"addresses": ["127.77.1.0/27"]', '"adresses": ["127.77.1.0/27"]'))
    found = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert found.returncode == 1
    assert 'expected "Pool' in found.stdout
