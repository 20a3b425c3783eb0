"""Failures stay local, are told in one sentence, and the next update goes on from there."""

import errno
import os

import pulumi
import pytest

from locallb.engine.core.events import Op, Severity, StepFailed
from tests.support.balancers import BOTH, ONE, declare, spec
from tests.support.engine import Bench, Thing, output, short


def test_a_failure_skips_dependents_and_spares_the_others(bench: Bench) -> None:
    """One process that can't start leaves the other balancer complete; the next run finishes the first."""
    bench.world.control = {"fail": {"EnvoyProcess::alpha": "no such binary"}}
    engine = bench.engine()
    result = engine.up(lambda: declare(spec()))
    assert not result.ok
    assert result.changes == {Op.CREATE: 12}
    assert [(short(d.urn), d.message) for d in result.diagnostics] == [("EnvoyProcess::alpha", "no such binary")]
    failed = [event for event in bench.events if isinstance(event, StepFailed)]
    assert [short(event.subject.urn) for event in failed] == ["EnvoyProcess::alpha"]
    bench.world.control = {}
    assert engine.up(lambda: declare(spec())).changes == {Op.CREATE: 3, Op.SAME: 12}


def test_a_program_that_raises_deletes_nothing_and_is_reported_in_one_sentence(bench: Bench) -> None:
    """What was registered stays applied; the message names the place in the program, the traceback is for debugging."""
    engine = bench.engine()
    engine.up(lambda: declare(spec()))

    def broken() -> None:
        raise ValueError("no such thing")

    result = engine.up(broken)
    assert not result.ok
    assert [d.message for d in result.diagnostics] == ["the program failed: ValueError: no such thing"]
    assert "Traceback" in result.diagnostics[0].debug
    assert len(bench.checkpoint().resources) == 16


def test_a_program_that_the_host_refuses_something_fails_with_a_remedy(bench: Bench) -> None:
    """Not by the number of an error."""

    def refused() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/place")

    (reported,) = bench.engine().up(refused).diagnostics
    assert reported.message.startswith("the program failed: /place: Too many open files; raise the limit of open files")
    assert "Traceback" in reported.debug


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), "FileNotFoundError: [Errno 2] No such file: '/x'"),
        (OSError(), "OSError"),
    ],
)
def test_a_mistake_of_a_program_is_reported_as_one(bench: Bench, error: OSError, reported: str) -> None:
    """With the kind of error, and the place in the program, as any other mistake: the host refused nothing."""

    def mistaken() -> None:
        raise error

    assert [d.message for d in bench.engine().up(mistaken).diagnostics] == [f"the program failed: {reported}"]


def test_a_run_error_is_reported_as_it_is(bench: Bench) -> None:
    """A program's own refusal is its sentence and nothing else."""

    def refuse() -> None:
        raise pulumi.RunError("the manifests can't be read")

    result = bench.engine().up(refuse)
    assert [(d.severity, d.message, d.debug) for d in result.diagnostics] == [
        (Severity.ERROR, "the manifests can't be read", "")
    ]


def test_an_error_that_the_program_logs_makes_the_result_not_ok(bench: Bench) -> None:
    """The resources are applied all the same."""

    def complaining() -> None:
        declare(spec())
        pulumi.log.error("one source can't be read")
        pulumi.log.warn("careful")

    result = bench.engine().up(complaining)
    assert not result.ok
    assert result.changes == {Op.CREATE: 15}
    assert [(d.severity.value, d.message) for d in result.diagnostics] == [
        ("error", "one source can't be read"),
        ("warning", "careful"),
    ]


def test_a_check_failure_names_the_property_and_its_value(bench: Bench) -> None:
    """The sentence is the official command line's."""
    problem = [{"property": "address", "reason": "is not an address"}]
    bench.world.control = {"check": {"LoopbackAddress::beta": problem}}
    result = bench.engine().up(lambda: declare(spec()))
    assert result.diagnostics[0].message == (
        "locallb:index:LoopbackAddress resource 'beta': property address value {127.77.0.2} has a problem: "
        "is not an address"
    )


def test_a_duplicate_name_stops_the_program(bench: Bench) -> None:
    """Two resources of one URN are a mistake of the program."""
    result = bench.engine().up(lambda: declare(spec() | {"duplicate": "twice"}))
    urn = "urn:pulumi:dev::local-lb::locallb:index:LoopbackAddress::twice"
    assert f"Duplicate resource URN '{urn}'; try giving it a unique name" in [d.message for d in result.diagnostics]


def test_an_update_that_fails_keeps_the_former_state_and_is_tried_again(bench: Bench) -> None:
    """Its dependents are skipped, the other balancer is updated."""
    engine = bench.engine()
    engine.up(lambda: declare(spec()))
    bench.world.control = {"fail_update": {"ProxyConfig::alpha": "disk full"}}
    changed = {"balancers": {name: given | {"port": 8080} for name, given in BOTH["balancers"].items()}}
    result = engine.up(lambda: declare(changed))
    assert not result.ok
    assert [(short(d.urn), d.message) for d in result.diagnostics] == [("ProxyConfig::alpha", "disk full")]
    ports = {short(r.urn): r.inputs.get("port", r.inputs.get("listeners")) for r in bench.checkpoint().resources}
    assert ports["ProxyConfig::alpha"] == [{"port": 80, "protocol": "TCP"}]
    assert ports["Reachable::alpha"] == 80
    assert ports["Reachable::beta"] == 8080
    assert bench.checkpoint().pending == ()
    bench.world.control = {}
    assert engine.up(lambda: declare(changed)).changes == {Op.UPDATE: 4, Op.SAME: 11}


def test_a_deletion_that_fails_keeps_what_the_resource_refers_to(bench: Bench) -> None:
    """The rest goes, and the next update deletes what was left."""
    engine = bench.engine()
    engine.up(lambda: declare(spec()))
    bench.world.control = {"fail_delete": {"ProxyConfig::beta": "still in use"}}
    inputs = ONE
    result = engine.up(lambda: declare(inputs))
    assert not result.ok
    assert [(short(d.urn), d.message) for d in result.diagnostics] == [("ProxyConfig::beta", "still in use")]
    remaining = {short(r.urn) for r in bench.checkpoint().resources if r.urn.endswith("::beta")}
    assert remaining == {"LoadBalancer::beta", "Proxy::beta", "LoopbackAddress::beta", "ProxyConfig::beta"}
    bench.world.control = {}
    assert engine.up(lambda: declare(inputs)).changes == {Op.DELETE: 4, Op.SAME: 8}


def test_a_failure_keeps_what_a_program_no_longer_declares(bench: Bench) -> None:
    """What the failed part would have declared or still uses can't be told from what is unwanted, in any root."""

    def program(*names: str) -> None:
        root = pulumi.ComponentResource("locallb:index:Proxy", "root")
        for name in names:
            Thing("Reachable", name, {"address": name}, pulumi.ResourceOptions(parent=root))
        Thing("Reachable", "apart", {"address": "x"}) if "b" in names else None

    engine = bench.engine()
    engine.up(lambda: program("a", "b"))
    bench.world.control = {"fail": {"Reachable::c": "no"}}
    result = engine.up(lambda: program("a", "c"))
    assert result.changes == {Op.SAME: 3}
    assert bench.world.called("delete") == []
    bench.world.control = {}
    assert engine.up(lambda: program("a", "c")).changes == {Op.SAME: 3, Op.CREATE: 1, Op.DELETE: 2}


def test_a_failed_dependent_keeps_the_old_instance_that_it_uses(bench: Bench) -> None:
    """The address stays twice until the proxy's configuration has moved to the new one."""
    engine = bench.engine()
    engine.up(lambda: declare(spec()))
    bench.world.control = {"fail_update": {"ProxyConfig::alpha": "disk full"}}
    assert not engine.up(lambda: declare(spec(alpha={"address": "127.77.0.9"}))).ok
    assert [r.inputs["address"] for r in bench.checkpoint().resources if r.delete] == ["127.77.0.1"]
    bench.world.control = {}
    result = engine.up(lambda: declare(spec(alpha={"address": "127.77.0.9"})))
    assert result.ok
    assert "LoopbackAddress::alpha|127.77.0.1" not in bench.world.things
    assert [r for r in bench.checkpoint().resources if r.delete] == []


def test_an_old_instance_that_cannot_be_deleted_is_deleted_by_destroy(bench: Bench) -> None:
    """Together with its successor."""
    engine = bench.engine()
    engine.up(lambda: declare(spec()))
    bench.world.control = {"fail_delete": {"LoopbackAddress::alpha": "busy"}}
    assert not engine.up(lambda: declare(spec(alpha={"address": "127.77.0.9"}))).ok
    bench.world.control = {}
    assert engine.destroy().ok
    assert bench.world.things == {}
    assert engine.resources() == ()


def test_resources_of_a_provider_that_is_not_there_are_left_by_destroy(bench: Bench) -> None:
    """By name; the others go."""
    engine = bench.engine()
    engine.up(lambda: declare(spec()))
    text = bench.state_path.read_text()
    provider = text[text.index('{"urn":"urn:pulumi:dev::local-lb::pulumi:providers') :].partition('},{"urn"')[0] + "}"
    other = provider.replace(":locallb::default", ":other::default").replace('providers:locallb"', 'providers:other"')
    resource = next(r.text for r in bench.checkpoint().resources if short(r.urn) == "LoopbackAddress::beta")
    lost = resource.replace("locallb::default", "other::default").replace(
        "LoopbackAddress::beta", "LoopbackAddress::lost"
    )
    bench.state_path.write_text(text.replace('],"metadata"', f',{other},{lost}],"metadata"'))
    result = engine.destroy(refresh=True)
    assert not result.ok
    assert "the provider other of" in result.diagnostics[0].message
    assert bench.world.things == {}
    retained = {short(r.urn) for r in engine.resources()}
    assert retained == {"Stack::local-lb-dev", "LoadBalancer::beta", "other::default", "LoopbackAddress::lost"}


def _dependent(version: str) -> None:
    """Declare a resource, and one that is only known once an output of it is."""
    config = Thing("ProxyConfig", "first", {"name": version})
    output(config, "version").apply(lambda _: Thing("ProxyConfig", "second", {"name": "same"}))


def test_a_failure_keeps_what_the_program_would_have_registered_once_it_knew_an_output(bench: Bench) -> None:
    """It isn't registered then, and not unwanted: whatever a program left out may be such."""
    assert bench.engine().up(lambda: _dependent("one")).ok
    bench.world.control = {"fail_update": {"ProxyConfig::first": "disk full"}}
    assert not bench.engine().up(lambda: _dependent("two")).ok
    kept = {short(resource.urn) for resource in bench.checkpoint().resources}
    assert {"ProxyConfig::first", "ProxyConfig::second"} <= kept
    assert bench.world.called("delete") == []
    bench.world.control = {}
    assert bench.engine().up(lambda: _dependent("two")).ok
    assert bench.engine().up(lambda: None).ok
    assert {short(resource.urn) for resource in bench.checkpoint().resources}.isdisjoint(kept - {"Stack::local-lb-dev"})


def test_outputs_that_a_program_breaks_off_before_stay(bench: Bench) -> None:
    """Only a program that came to its end says that one is gone."""

    def program(*, breaks: bool) -> None:
        pulumi.export("first", 2 if breaks else 1)
        if breaks:
            raise ValueError("no such thing")
        pulumi.export("second", 1)

    def outputs() -> dict[str, object]:
        (stack,) = [each for each in bench.raw()["resources"] if each["type"] == "pulumi:pulumi:Stack"]
        return dict(stack.get("outputs", {}))

    assert bench.engine().up(lambda: program(breaks=False)).ok
    assert not bench.engine().up(lambda: program(breaks=True)).ok
    assert outputs() == {"first": 2, "second": 1}
    assert bench.engine().up(lambda: pulumi.export("second", 3)).ok
    assert outputs() == {"second": 3}
