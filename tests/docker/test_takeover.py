"""Containers under the official Pulumi CLI and its docker plugin: either engine goes on where the other left off.

Needs both of them; where they are absent, recordings of the plugin stand in (test_goldens.py).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docker.daemon import GATEWAYS, NODE_PORT, Hosted, gardeners, requested
from tests.support.backends import Backend, ask
from tests.support.containers import (
    HARMS,
    Harm,
    Network,
    configure,
    containers,
    docker,
    docker_only,
    furnish,
    goes_on_after,
    identities,
    own_pool,
)
from tests.support.manifests import node, port, service
from tests.support.official_cli import (
    bring,
    command_line,
    content,
    end_session,
    environment,
    find_docker_plugin,
    make_runnable,
    make_stack,
    needs_cli,
    pulumi,
    start,
    update,
)
from tests.support.shared_proxies import SHARED, SPARE
from tests.support.stages import Stage, stage
from tests.support.waiting import becomes

pytestmark = [
    docker_only,
    pytest.mark.docker,
    pytest.mark.envoy,
    pytest.mark.pulumi,
    needs_cli,
    pytest.mark.skipif(
        not find_docker_plugin(), reason="no official docker plugin, which is in no registry: its recordings stand in"
    ),
]


@pytest.fixture(params=["host", "publish"])
def where(request: pytest.FixtureRequest, network: Network) -> Network | None:
    """Return the network of the containers; None is the host's."""
    return network if request.param == "publish" else None


@pytest.fixture
def shop(image: str, where: Network | None, backend: Callable[..., Backend]) -> Iterator[Stage]:
    """Return a stack of two Services that the CLI can run as well, not deployed yet."""
    with stage() as play:
        furnish(play, image, backend, where)
        make_runnable(play.root)
        yield play
        play.run("gc", "--yes")  # what a failed test left beside the state


def settled(shop: Stage) -> None:
    """Check that no run of either engine changes anything, with a refresh or without, and no container is another."""
    before = identities(shop)
    for terms in (("up", "--refresh=false"), ("up",), ("refresh",), ("up", "--refresh=false")):
        done = pulumi(shop, *terms, "--yes", "--skip-preview", "--expect-no-changes")
        assert done.code == 0, (terms, done.out + done.err)
    for command in ("up", "refresh", "up"):
        done = shop.run(command, "--yes", "--expect-no-changes")
        assert done.code == 0, (command, done.out + done.err)
    content(shop)
    assert identities(shop) == before


def serves(shop: Stage) -> None:
    """Check that clients are answered at every address."""
    at = shop.addresses()
    assert ask(at["n/web"], 80) == "web: hello"
    assert (ask(at["n/dns"], 53), ask(at["n/dns"], 53, "UDP")) == ("dns: hello", "dns: hello")


def is_clean(shop: Stage) -> bool:
    """Return whether nothing is left of a deployment."""
    return containers(shop) == {} and list((shop.state_home / "proxies").glob("*")) == []


def test_the_cli_finds_nothing_to_change_after_locallb_and_removes_what_it_made(shop: Stage) -> None:
    """Containers, addresses, files: all of it."""
    shop.up()
    settled(shop)
    serves(shop)
    update(shop, "destroy")
    assert is_clean(shop)


def test_locallb_finds_nothing_to_change_after_the_cli_and_removes_what_it_made(shop: Stage) -> None:
    """It looks before the CLI itself has looked once more."""
    make_stack(shop)
    update(shop, "up")
    before = identities(shop)
    for terms in (("preview",), ("up", "--yes"), ("refresh", "--yes"), ("preview",)):
        done = shop.run(*terms, "--expect-no-changes")
        assert done.code == 0, (terms, done.out + done.err)
    settled(shop)
    serves(shop)
    assert identities(shop) == before
    assert shop.run("destroy", "--yes").code == 0
    assert is_clean(shop)


def test_ports_come_and_go_by_turns(shop: Stage, where: Network | None, backend: Callable[..., Backend]) -> None:
    """The addresses stay and so does the neighbour's container; on the host's network all of them."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    host = where.gateway if where else "127.0.0.1"
    web, extra = backend("web", host), backend("extra", host)
    one, two = port(80, web.port), port(81, extra.port)
    for ports, by in (((one, two), "pulumi"), ((one,), "locallb"), ((one, two), "locallb"), ((one,), "pulumi")):
        shop.write("web.yaml", service("web", *ports))
        bring(shop, by)
        content(shop)
        serves(shop)
        assert len(ports) == 1 or ask(at["n/web"], 81) == "extra: hello"
        after = identities(shop)
        assert (shop.addresses(), after["dns"]) == (at, before["dns"])
        assert where or after == before


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.terms[0])
def test_locallb_repairs_containers_made_by_the_pulumi_cli(shop: Stage, where: Network | None, harm: Harm) -> None:
    """The same container goes on where the harm allows it, in either network."""
    del where
    make_stack(shop)
    bring(shop, "pulumi")
    assert goes_on_after(shop, harm, shop.up) is harm.goes_on
    content(shop)


@pytest.mark.parametrize("harm", [harm for harm in HARMS if harm.terms != ("pause",)], ids=lambda harm: harm.terms[0])
def test_pulumi_cli_repairs_containers_made_by_locallb(shop: Stage, where: Network | None, harm: Harm) -> None:
    """As `locallb` does, but that it replaces one with published ports that ended."""
    shop.up()
    goes_on = goes_on_after(shop, harm, lambda: bring(shop, "pulumi"))
    assert goes_on is (harm.goes_on_published_by_pulumi if where else harm.goes_on)
    content(shop)


@pytest.mark.parametrize("sees", ["locallb", "pulumi"])
@pytest.mark.parametrize("harm", [HARMS[0], HARMS[-1]], ids=lambda harm: harm.terms[0])
def test_either_engine_repairs_damage_found_by_the_others_refresh(
    shop: Stage, where: Network | None, harm: Harm, sees: str
) -> None:
    """A refresh by either writes what the other understands."""
    shop.up()

    def repair() -> None:
        if sees == "locallb":
            assert shop.run("refresh", "--yes").code == 0
            bring(shop, "pulumi")
        else:
            update(shop, "refresh")
            bring(shop, "locallb")

    by_pulumi = where and sees == "locallb"
    assert goes_on_after(shop, harm, repair) is (harm.goes_on_published_by_pulumi if by_pulumi else harm.goes_on)
    content(shop)


def test_limits_and_images_change_by_turns(shop: Stage, image: str) -> None:
    """Memory in place, by either; CPUs and another name of the image with another container, as both decide."""
    digest = docker("image", "inspect", "--format", "{{.Id}}", image)
    shop.up()
    at, before = shop.addresses(), identities(shop)
    for changes, by, remains in (
        ({"limits": {"memory": 256}}, "pulumi", True),
        ({"limits": {"memory": 300}}, "locallb", True),
        ({"limits": {"memory": 300, "cpus": 1.5}}, "locallb", False),
        ({"limits": {"memory": 300, "cpus": 0.25}}, "pulumi", False),
        ({"limits": None}, "locallb", False),
        ({"image": digest}, "pulumi", False),
        ({"image": image}, "locallb", False),
    ):
        configure(shop, **changes)
        bring(shop, by)
        content(shop)
        serves(shop)
        after = identities(shop)
        assert (shop.addresses(), after == before) == (at, remains), changes
        before = after


def test_a_paused_container_is_reported_by_the_cli_with_the_remedy(shop: Stage) -> None:
    """The official plugin doesn't see it; the proof does."""
    shop.up()
    before = identities(shop)
    docker("pause", before["web"])
    done = pulumi(shop, "up", "--yes", "--skip-preview")
    assert done.code != 0
    assert "is paused" in done.out + done.err
    assert f"docker unpause {before['web'][:12]}" in done.out + done.err
    shop.up()
    content(shop)
    serves(shop)
    assert identities(shop) == before


def test_locallb_goes_on_where_the_cli_was_killed(shop: Stage) -> None:
    """In the middle of its first update, right after a container was made: one run, and both have nothing to do."""
    make_stack(shop)
    with start(shop, "up", "--yes", "--skip-preview") as process:
        becomes(lambda: "web" in containers(shop))
        end_session(process)
    shop.up()
    content(shop)
    serves(shop)


def test_after_locallb_was_killed_the_cli_says_which_engine_continues(shop: Stage) -> None:
    """What was done stands in a journal that only `locallb` reads: it has to run once, and then both are content."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    docker("rm", "-f", before["web"])
    kill_locallb_when(shop, lambda: "web" in containers(shop))
    for terms in (("preview",), ("cancel", "--yes"), ("up", "--yes", "--skip-preview")):
        done = pulumi(shop, *terms)
        assert (terms[0] == "cancel") is (done.code == 0)
        assert terms[0] == "cancel" or "run `locallb up`, which goes on where it stopped" in done.out + done.err
    shop.up()
    content(shop)
    serves(shop)
    assert shop.addresses() == at
    assert identities(shop)["dns"] == before["dns"]


def kill_locallb_when(shop: Stage, so_far: Callable[[], bool]) -> None:
    """Run `locallb up`, and kill it once it has come so far."""
    locallb = [str(Path(sys.executable).parent / "locallb"), "-C", str(shop.root), "up", "--yes"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(locallb, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True) as process:
        becomes(so_far)
        end_session(process)


def test_gc_removes_a_container_that_pulumi_destroy_does_not_know(shop: Stage) -> None:
    """After a kill of locallb: `pulumi destroy` runs no program and knows the earlier state only."""
    shop.up()
    shop.write("extra.yaml", service("extra", port(80, 30000)))
    kill_locallb_when(shop, lambda: "extra" in containers(shop))
    assert pulumi(shop, "cancel", "--yes").code == 0
    update(shop, "destroy")
    assert set(containers(shop)) == {"extra"}
    assert ("container", True) in {(row["sort"], row["ours"]) for row in shop.run("gc", "--json").json}
    assert shop.run("gc", "--yes").code == 0
    assert is_clean(shop)
    shop.up()
    assert set(containers(shop)) == {"web", "dns", "extra"}


def test_a_lost_state_is_made_again_by_locallb_and_left_alone_by_the_cli(shop: Stage) -> None:
    """The official plugin adopts nothing: it refuses the name, and harms nothing."""
    shop.up()
    at, before = shop.addresses(), identities(shop)
    (shop.root / ".state/.pulumi/stacks/local-lb/dev.json").unlink()
    make_stack(shop)
    done = pulumi(shop, "up", "--yes", "--skip-preview")
    assert done.code != 0
    assert "is already in use by container" in done.out + done.err
    serves(shop)
    shop.up()
    assert (shop.addresses(), identities(shop)) == (at, before)
    settled(shop)


@pytest.mark.parametrize("proxies", [SHARED, SPARE], ids=["shared", "spares"])
def test_proxies_of_the_stack_are_taken_over_too(image: str, backend: Callable[..., Backend], proxies: object) -> None:
    """Services come and go by turns in the containers that are there; one that was killed goes on."""
    one = service("one", port(80, backend("one").port))
    two = service("two", port(80, backend("two").port))
    with stage() as play:
        play.configure(runtime="docker", image=image, pools=own_pool(), proxies=proxies)
        make_runnable(play.root)
        play.write("all.yaml", node(), one)
        play.up()
        settled(play)
        before = identities(play)
        for services, by in (((one, two), "pulumi"), ((one,), "locallb"), ((one, two), "locallb"), ((two,), "pulumi")):
            play.write("all.yaml", node(), *services)
            bring(play, by)
            content(play)
            for name, at in play.addresses().items():
                assert f"n/{ask(at, 80)}" == f"{name}: hello"
            assert proxies is not SHARED or identities(play) == before
        before = identities(play)
        for by in ("pulumi", "locallb"):
            for identity in before.values():
                docker("kill", identity)
            bring(play, by)
            content(play)
            assert ask(play.addresses()["n/two"], 80) == "two: hello"
            assert identities(play) == before
        update(play, "destroy")
        assert is_clean(play)


@pytest.fixture
def host(image: str) -> Iterator[Hosted]:
    """Return a host in Gardener's layout, with a Docker of its own that DOCKER_HOST names."""
    del image  # there is a daemon, or there is none to be had
    with gardeners() as made:
        make_runnable(made.project.root)
        made.project.space.shell("sysctl -qw net.ipv6.ip_nonlocal_bind=1")
        yield made


def test_both_families_in_gardeners_layout_settle_in_both_engines(host: Hosted) -> None:
    """With a container port for each family, fixed internal addresses and its names: on another Docker."""
    ports = port(80, NODE_PORT), port(80, NODE_PORT, "UDP")
    host.project.write(
        "both.yaml", service("both", *ports, uid="4b3c", ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="RequireDualStack")
    )
    host.project.up()
    before = host.identities()
    assert len(before) == 1
    pulumi_inside(host, "preview", "--expect-no-changes")
    pulumi_inside(host, "up", "--yes", "--skip-preview", "--expect-no-changes")
    for terms in (("preview",), ("up", "--yes")):
        done = host.project.locallb(*terms, "--expect-no-changes")
        assert done.code == 0, done.out + done.err
    assert host.identities() == before
    pulumi_inside(host, "destroy", "--yes", "--skip-preview")
    assert host.identities() == {}
    pulumi_inside(host, "up", "--yes", "--skip-preview")
    after = host.identities()
    done = host.project.locallb("up", "--yes", "--expect-no-changes")
    assert done.code == 0, done.out + done.err
    (row,) = host.project.status().values()
    places = [f"{protocol}@{address}@80" for protocol in ("TCP", "UDP") for address in row["addresses"]]
    assert requested(host.project.space, *places) == [
        f"{p} at {gateway}" for p in ("TCP", "UDP") for gateway in GATEWAYS
    ]
    assert host.identities() == after


def pulumi_inside(host: Hosted, *terms: str) -> None:
    """Run the CLI in the namespaces of a host, and expect it to succeed."""
    told = {**environment(), "XDG_STATE_HOME": str(host.project.root / "s")}
    done = host.project.space.run(*command_line(host.project.root, *terms), user=0, **told)
    assert done.code == 0, (terms, done.out + done.err)
