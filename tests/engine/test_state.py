"""The state file: what is refused and how, what is kept, and the format that is written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from locallb.engine.core.events import Result
from locallb.engine.state.checkpoint import check_state, magic_of
from locallb.engine.state.errors import EngineError, StateBroken, StateUnwritable, Unsupported
from tests.support.balancers import ONE, declare
from tests.support.engine import Bench, World, make_project, short

Whole = dict[str, Any]
Tamper = Callable[[Whole], object]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return a project whose stack is deployed."""
    bench = Bench(make_project(tmp_path / "p"), World())
    assert bench.engine().up(lambda: declare(ONE)).ok
    return bench


def latest(whole: Whole) -> dict[str, Any]:
    part: dict[str, Any] = whole["checkpoint"]["latest"]
    return part


def find(whole: Whole, kind: str) -> dict[str, Any]:
    resource: dict[str, Any] = next(r for r in latest(whole)["resources"] if short(r["urn"]).startswith(kind))
    return resource


def move_last(whole: Whole, kind: str) -> None:
    resources = latest(whole)["resources"]
    resources.append(resources.pop(resources.index(find(whole, kind))))


def tampered(bench: Bench, tamper: Tamper) -> Result:
    """Change the state by hand and update."""
    whole = json.loads(bench.state_path.read_text())
    tamper(whole)
    bench.state_path.write_text(json.dumps(whole))
    return bench.engine().up(lambda: declare(ONE))


REFUSED: dict[str, tuple[Tamper, str]] = {
    "wrong checksum": (lambda w: latest(w)["manifest"].update(magic="0" * 64), "checksum"),
    "no checksum": (lambda w: latest(w)["manifest"].update(magic=""), "checksum"),
    "no version": (lambda w: latest(w)["manifest"].update(version=""), "checksum"),
    "dependency after its user": (lambda w: move_last(w, "LoopbackAddress"), "comes later"),
    "provider after its users": (lambda w: move_last(w, "locallb::"), "is missing or comes later"),
    "the Stack last": (lambda w: move_last(w, "Stack"), "comes later"),
    "provider of an unknown id": (
        lambda w: find(w, "Reachable").update(provider=find(w, "Reachable")["provider"][:-4] + "beef"),
        "is missing or comes later",
    ),
    "no provider": (lambda w: find(w, "Reachable").pop("provider"), "without a provider"),
    "unknown parent": (lambda w: find(w, "Reachable").update(parent="urn:pulumi:dev::p::a:b:C::d"), "is missing"),
    "unknown dependency": (
        lambda w: find(w, "Reachable").update(dependencies=["urn:pulumi:dev::p::a:b:C::d"]),
        "is missing",
    ),
    "custom without id": (lambda w: find(w, "Reachable").pop("id"), "without an id"),
    "component with id": (lambda w: find(w, "LoadBalancer").update(id="x"), "component with the id"),
    "listed twice": (lambda w: latest(w)["resources"].append(find(w, "Reachable")), "listed twice"),
    "no URN": (lambda w: find(w, "Reachable").update(urn="reachable"), "not a URN"),
    "newer format": (lambda w: w.update(version=4), "format version 4"),
    "older format": (lambda w: w.update(version=2), "format version 2"),
    "no format": (lambda w: w.pop("version"), "format version None"),
    "no checkpoint": (lambda w: w.pop("checkpoint"), "form of a state"),
    "resources that are none": (lambda w: latest(w).update(resources=[1]), "form of a state"),
    "resources that are no list": (lambda w: latest(w).update(resources={"a": 1}), "form of a state"),
    "inputs that are none": (lambda w: find(w, "Reachable").update(inputs=[1]), "form of a state"),
    "dependencies that are none": (lambda w: find(w, "Reachable").update(dependencies="a"), "form of a state"),
    "an id that is no text": (lambda w: find(w, "Reachable").update(id=7), "form of a state"),
    "pending operation of nothing": (
        lambda w: latest(w).update(pending_operations=[{"type": "creating", "resource": {"urn": "x", "type": "y"}}]),
        "pending operations",
    ),
}
ACCEPTED: dict[str, Tamper] = {
    "no secrets_providers": lambda w: latest(w).pop("secrets_providers", None),
    "other secrets_providers": lambda w: latest(w).update(secrets_providers={"type": "", "state": {"resources": []}}),
    "no manifest": lambda w: latest(w).pop("manifest"),
    "manifest without time": lambda w: latest(w)["manifest"].pop("time"),
    "another version": lambda w: latest(w)["manifest"].update(version="v3.1.0", magic=magic_of("v3.1.0")),
    "no metadata": lambda w: latest(w).pop("metadata"),
    "unknown field in a resource": lambda w: find(w, "Reachable").update(ourOwn=1),
    "unknown field in the state": lambda w: latest(w).update(ourOwn=1),
    "unknown field on top": lambda w: w.update(ourOwn=1),
    "no times": lambda w: [r.pop("created") and r.pop("modified") for r in latest(w)["resources"]],
    "no dependencies": lambda w: find(w, "ServiceStatus").pop("dependencies"),
    "no propertyDependencies": lambda w: find(w, "ServiceStatus").pop("propertyDependencies"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_state_that_breaks_a_rule_is_refused_in_one_sentence_and_kept(name: str, bench: Bench) -> None:
    """The sentence names the file, the fault and the way out; nothing is written or called."""
    tamper, terms = REFUSED[name]
    calls = len(bench.world.calls)
    with pytest.raises(StateBroken, match=terms) as caught:
        tampered(bench, tamper)
    assert str(bench.state_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(bench.world.calls) == calls
    assert any(terms in complaint or "can't be read" in complaint for complaint in check_state(bench.state_path))


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_state_that_the_official_command_line_accepts_is_accepted(name: str, bench: Bench) -> None:
    """An update has nothing to do."""
    result = tampered(bench, ACCEPTED[name])
    assert result.ok
    assert result.unchanged
    assert check_state(bench.state_path) == ()


@pytest.mark.parametrize(
    "text", ["", "{", '{"version":3,"checkpoint":{"stack":"a","latest":{"resources":[{"urn"', "[]"]
)
def test_a_state_cut_short_is_refused(text: str, bench: Bench) -> None:
    """With the file and the way back."""
    bench.state_path.write_text(text)
    with pytest.raises(StateBroken, match="run `locallb state restore` to go back to the last good state"):
        bench.engine().up(lambda: declare(ONE))
    assert check_state(bench.state_path)


def test_a_state_that_is_no_text_is_refused(bench: Bench) -> None:
    """Likewise."""
    bench.state_path.write_bytes(b"\xff\xfe")
    with pytest.raises(StateBroken, match="it is no text"):
        bench.engine().resources()


def test_a_compressed_state_is_refused_by_name(bench: Bench) -> None:
    """It would be the official command line's."""
    bench.state_path.with_name("dev.json.gz").write_bytes(b"")
    with pytest.raises(StateBroken, match="compressed"):
        bench.engine().up(lambda: declare(ONE))


@pytest.mark.parametrize(
    ("tamper", "terms"),
    [
        (lambda w: find(w, "Reachable").update(external=True), "only read"),
        (
            lambda w: find(w, "Reachable").update(inputs={"a": {"4dabf18193072939515e22adb298388d": "1b47"}}),
            "a secret, asset or reference",
        ),
    ],
)
def test_a_state_with_what_the_engine_cannot_keep_is_refused_by_name(tamper: Tamper, terms: str, bench: Bench) -> None:
    """Pointing to the official command line."""
    with pytest.raises(Unsupported, match=terms) as caught:
        tampered(bench, tamper)
    assert "use `pulumi up`" in str(caught.value)


@pytest.mark.parametrize(("field", "option"), [("protect", "protect"), ("retainOnDelete", "retain_on_delete")])
def test_a_resource_with_an_option_against_deletion_is_not_deleted(field: str, option: str, bench: Bench) -> None:
    """Neither is what it needs; the rest goes."""
    whole = json.loads(bench.state_path.read_text())
    find(whole, "ProxyConfig")[field] = True
    bench.state_path.write_text(json.dumps(whole))
    result = bench.engine().destroy()
    assert not result.ok
    assert option in result.diagnostics[0].message
    remaining = {short(resource.urn).split("::")[0] for resource in bench.checkpoint().resources}
    assert remaining == {"Stack", "LoadBalancer", "Proxy", "LoopbackAddress", "ProxyConfig", "locallb"}


def test_the_state_is_written_as_the_official_command_line_does(bench: Bench) -> None:
    """One line, its order of keys, its backend's layout."""
    text = bench.state_path.read_text()
    assert "\n" not in text
    whole = json.loads(text)
    assert text == json.dumps(whole, separators=(",", ":"), ensure_ascii=False)
    assert list(whole) == ["version", "checkpoint"]
    assert list(whole["checkpoint"]) == ["stack", "latest"]
    assert list(latest(whole)) == ["manifest", "resources", "metadata"]
    assert list(find(whole, "Reachable")) == [
        "urn", "custom", "id", "type", "inputs", "outputs", "parent", "dependencies", "provider",
        "propertyDependencies", "created", "modified",
    ]  # fmt: skip
    base = bench.project.backend / ".pulumi"
    assert (base / "meta.yaml").read_text() == "version: 1\n"
    assert list((base / "locks").rglob("*.json")) == []
    assert list((base / "journals").rglob("*.jsonl")) == []


def test_unknown_fields_of_the_state_survive_an_update(bench: Bench) -> None:
    """A secrets provider and fields that the engine doesn't know survive an update."""
    whole = json.loads(bench.state_path.read_text())
    latest(whole)["secrets_providers"] = {"type": "passphrase", "state": {"salt": "v1:x"}}
    latest(whole)["new"] = [1]
    whole["checkpoint"]["newer"] = {"a": 1}
    bench.state_path.write_text(json.dumps(whole))
    changed = {"balancers": {"alpha": ONE["balancers"]["alpha"] | {"port": 81}}}
    assert bench.engine().up(lambda: declare(changed)).ok
    after = json.loads(bench.state_path.read_text())
    assert list(latest(after)) == ["manifest", "secrets_providers", "resources", "metadata", "new"]
    assert latest(after)["secrets_providers"]["state"] == {"salt": "v1:x"}
    assert after["checkpoint"]["newer"] == {"a": 1}


def test_each_change_leaves_a_backup_of_the_state_before(bench: Bench) -> None:
    """Those of the last hour but the newest few are removed."""
    before = bench.state_path.read_text()
    engine = bench.engine()
    for port in range(81, 104):
        changed = {"balancers": {"alpha": ONE["balancers"]["alpha"] | {"port": port}}}
        assert engine.up(lambda changed=changed: declare(changed)).ok  # type: ignore[misc]  # the default is the loop's value
        backups = sorted((bench.project.backend / ".pulumi" / "backups" / "local-lb" / "dev").iterdir())
        if port == 81:
            assert [path.read_text() for path in backups] == [before]
    assert 5 <= len(backups) <= 7  # an hour or a day may begin meanwhile


def test_state_written_by_another_engine_is_read_again(bench: Bench) -> None:
    """One engine sees what another one did in between."""
    first, second = bench.engine(), bench.engine()
    first.resources()
    changed = {"balancers": {"alpha": ONE["balancers"]["alpha"] | {"port": 81}}}
    second.up(lambda: declare(changed))
    assert first.up(lambda: declare(changed)).unchanged


def test_a_disk_that_cannot_be_written_is_reported_in_one_sentence(bench: Bench) -> None:
    """Nothing is called when the lock can't be made; nothing is lost when the state can't be kept."""
    calls = len(bench.world.calls)

    def full(what: str) -> None:
        if full_at in what:
            raise OSError(28, "No space left on device")

    for full_at in ("create", "append", "dev.json"):
        bench.files = type(bench.files)(full)
        with pytest.raises(StateUnwritable, match="No space left on device") as caught:
            bench.engine().destroy()
        assert "\n" not in str(caught.value)
        if full_at == "create":
            assert len(bench.world.calls) == calls
    bench.files = type(bench.files)()
    result = bench.engine().destroy()
    assert result.ok
    assert bench.world.things == {}
    assert check_state(bench.state_path) == ()


def test_a_missing_state_is_an_empty_stack(tmp_path: Path) -> None:
    """Nothing to show, nothing to check, nothing to destroy."""
    bench = Bench(make_project(tmp_path), World())
    assert bench.engine().resources() == ()
    assert check_state(bench.state_path) == ()
    assert bench.engine().destroy().unchanged
    assert not bench.state_path.exists()
    assert issubclass(StateBroken, EngineError)
