"""The engine's small parts, where a whole run would show too little."""

import json
import os
import resource
from pathlib import Path
from typing import Any

import pulumi
import pytest
from google.protobuf import empty_pb2, struct_pb2
from hypothesis import given
from hypothesis import strategies as st
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime import rpc
from pulumi.runtime.proto import engine_pb2

from locallb.engine.core.events import Result, ignore
from locallb.engine.core.reporting import Reporter
from locallb.engine.monitor import EngineService, Monitor
from locallb.engine.sdk_wire import from_property_values, from_struct, to_property_values, to_struct
from locallb.engine.state.checkpoint import check_state, parse_checkpoint, timestamp
from locallb.engine.state.errors import EngineError, ProjectError, StateBroken, StateUnwritable, Unsupported
from locallb.engine.state.files import Files
from locallb.engine.state.journal import decode, encode, read_journal
from locallb.engine.state.project import load_project
from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.stack_state import Begin, Drop, End, Free, Mutation, Put, StackState, Supersede
from locallb.engine.state.values import (
    SIGNATURE,
    UNKNOWN,
    PropertyChange,
    Value,
    changes_between,
    number,
    without_unknown,
)
from tests.support.engine import Bench, Thing, World, make_project

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
URN = "urn:pulumi:dev::p::a:b:C::"


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_values_survive_the_way_to_the_program_and_to_providers(values: dict[str, Value]) -> None:
    """Through protobuf and through property values."""
    plain = {key: _numbers(value) for key, value in values.items()}
    assert from_struct(to_struct(plain), "x") == plain
    assert from_property_values(to_property_values(plain), "x") == plain


def _numbers(value: Value) -> Value:
    """Whole numbers are ints, as in the state."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return number(value) if isinstance(value, float) else value


def test_the_marks_of_the_wire_are_the_sdks() -> None:
    """A state is read without the SDK, by the same marks."""
    assert (rpc.UNKNOWN, rpc._special_sig_key) == (UNKNOWN, SIGNATURE)


def test_numbers_that_json_cannot_hold_are_refused() -> None:
    """By name."""
    with pytest.raises(Unsupported, match="the number inf"):
        number(float("inf"))


def wire(**fields: Value) -> struct_pb2.Struct:
    """Make a struct with a value in one of Pulumi's envelopes."""
    return to_struct({"x": {rpc._special_sig_key: rpc._special_output_value_sig, **fields}})


def test_output_values_are_opened() -> None:
    """A known one is its value, one without is unknown, a secret one is refused."""
    assert from_struct(wire(value=7), "w") == {"x": 7}
    assert from_struct(wire(), "w") == {"x": UNKNOWN}
    with pytest.raises(Unsupported, match="w, property x: a secret"):
        from_struct(wire(value=7, secret=True), "w")


def test_unknown_property_values_are_the_unknown_string() -> None:
    """Providers may give either."""
    assert from_property_values({"x": PropertyValue.computed()}, "w") == {"x": UNKNOWN}
    with pytest.raises(Unsupported, match="a value of type FileAsset"):
        from_property_values({"x": PropertyValue(pulumi.FileAsset("f"))}, "w")


def test_unknowns_are_found_however_deep() -> None:
    """And leave with the whole property."""
    assert without_unknown({"a": [{"b": UNKNOWN}], "c": 1}) == {"c": 1}


def test_changes_name_each_leaf_that_differs() -> None:
    """Lists of one length are compared item by item; keys that force a replacement are marked."""
    old: dict[str, Value] = {"a": [1, {"b": 2}], "gone": 1, "l": [1], "same": {}, "t": True}
    new: dict[str, Value] = {"a": [1, {"b": 3}], "new": 1, "l": [1, 2], "same": {}, "t": 1}
    assert changes_between(old, new, ["a[1].b", "l"]) == (
        PropertyChange("a[1].b", "update", 2, 3, replaces=True),
        PropertyChange("gone", "delete", 1, None),
        PropertyChange("l", "update", [1], [1, 2], replaces=True),
        PropertyChange("new", "add", None, 1),
        PropertyChange("t", "update", True, 1),
    )


def state(name: str, **more: Any) -> ResourceState:  # noqa: ANN401 fields of a resource
    return ResourceState(f"{URN}{name}", "a:b:C", custom=False, **more)


MUTATIONS: list[Mutation] = [
    Put(state("a", inputs={"x": [1]}, extras={"sourcePosition": "here"})),
    Supersede(state("a", inputs={"x": [2]}), 7),
    Drop(f"{URN}b"),
    Free(7),
    Begin(8, Pending("creating", state("c"))),
    End(8),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: type(mutation).__name__)
def test_a_change_survives_the_journal(mutation: Mutation) -> None:
    """What was written is what is read."""
    assert encode(decode(json.loads(encode(mutation)))) == encode(mutation)


def test_a_resource_that_comes_to_depend_on_a_later_one_moves_behind_it() -> None:
    """And what refers to it moves along; everything else keeps its place."""
    snapshot = StackState([state("a"), state("b", parent=f"{URN}a"), state("c"), state("d")])
    snapshot.apply(Put(state("a", dependencies=(f"{URN}c",))))
    assert [resource.name for resource in snapshot.in_order()] == ["c", "a", "b", "d"]
    assert [resource.name for resource in snapshot.sort(snapshot.live)] == ["c", "a", "b", "d"]


def test_resource_list_is_the_same_object_until_a_resource_changes() -> None:
    """So it can be compared by identity; operations that begin and end aren't in it."""
    snapshot = StackState([state("a"), state("b")])
    for mutation in MUTATIONS:
        before = snapshot.in_order()
        snapshot.apply(mutation)
        after = snapshot.in_order()
        assert after == (*snapshot.in_order_live(), *snapshot.condemned.values())
        assert (after is before) == isinstance(mutation, Begin | End)


def test_deleted_with_counts_as_a_reference() -> None:
    """A field that the official command line writes."""
    found = state("a", extras={"deletedWith": f"{URN}z"})
    assert found.references == {f"{URN}z"}


def test_times_are_written_as_the_official_command_line_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nanoseconds without trailing zeros."""
    monkeypatch.setattr("locallb.engine.state.checkpoint.time_ns", lambda: 1_000_000_000_120_000_000)
    assert timestamp() == "2001-09-09T01:46:40.12Z"
    monkeypatch.setattr("locallb.engine.state.checkpoint.time_ns", lambda: 1_000_000_000_000_000_000)
    assert timestamp() == "2001-09-09T01:46:40Z"


def test_a_state_in_which_the_word_resources_comes_earlier_is_read() -> None:
    """Another part may have a key of that name."""
    latest = '{"secrets_providers":{"type":"x","state":{"resources":[{"urn":"?"}]}},"resources":[],"metadata":{}}'
    text = f'{{"version":3,"checkpoint":{{"stack":"s","latest":{latest}}}}}'
    checkpoint = parse_checkpoint(text, "s", Path("x"))
    assert checkpoint.resources == ()
    assert checkpoint.latest["secrets_providers"] == {"type": "x", "state": {"resources": [{"urn": "?"}]}}


def test_the_program_can_ask_for_the_root_and_not_for_a_version() -> None:
    """What the SDK's engine service has besides messages."""
    service = EngineService(Reporter(ignore, planning=False))
    service.SetRootResource(engine_pb2.SetRootResourceRequest(urn="u"))
    assert service.GetRootResource(empty_pb2.Empty()).urn == "u"
    with pytest.raises(EngineError, match="requiring a version"):
        service.RequirePulumiVersion(None)


def test_unsupported_monitor_calls_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each method by name."""
    monkeypatch.setattr(Monitor, "__init__", lambda self: setattr(self, "errors", []))
    monitor: Any = Monitor()  # type: ignore[call-arg]  # it needs no deployment to refuse
    for method in ("ExistsResource", "RegisterPackage", "RegisterStackInvokeTransform", "RegisterErrorHook"):
        with pytest.raises(Unsupported):
            getattr(monitor, method)(None)
    request = type("Request", (), {"tok": "a:b:C/m"})
    with pytest.raises(Unsupported, match="the method a:b:C/m"):
        monitor.Call(request)


def test_a_result_without_changes_says_so() -> None:
    """Nothing at all is unchanged too."""
    assert Result(ok=True).unchanged


def test_second_configuration_of_one_provider_object_is_refused(tmp_path: Path) -> None:
    """A function that makes providers serves several."""
    from locallb.engine.engine import Engine  # noqa: PLC0415 for this test only
    from tests.support.engine import WorldProvider  # noqa: PLC0415 for this test only

    bench = Bench(make_project(tmp_path), World())
    engine = Engine(bench.project, "dev", {"locallb": WorldProvider(bench.world)})

    def program() -> None:
        given = pulumi.ProviderResource("locallb", "mine", {"region": "here"})
        Thing("Reachable", "a", {"address": "x"}, pulumi.ResourceOptions(provider=given))
        Thing("Reachable", "b", {"address": "x"})

    result = engine.up(program)
    assert "a second configuration of one provider object" in result.diagnostics[0].message


@pytest.mark.parametrize("maximum", [1, 7, 1 << 20])
def test_a_file_is_whole_however_many_bytes_the_kernel_takes_at_once(
    maximum: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux takes a page less than 2 GiB per call, and file systems outside of it less."""
    write, path, data = os.write, tmp_path / "state.json", b"0123456789" * 1000
    monkeypatch.setattr(os, "write", lambda descriptor, rest: write(descriptor, bytes(rest)[:maximum]))
    Files().replace(path, data)
    assert path.read_bytes() == data


@pytest.mark.parametrize("room", [0, 150, 150_050])
def test_a_disk_that_fills_up_leaves_the_file_as_it_was(room: int, tmp_path: Path) -> None:
    """At once, or within the call: the kernel takes what fits, and says why when it is given the rest."""
    path, before = tmp_path / "state.json", resource.getrlimit(resource.RLIMIT_FSIZE)
    path.write_text("before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(StateUnwritable, match=r"state.json can't be written: File too large; raise the limit"):
            Files().replace(path, b"x" * 300_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (path.read_text(), [*tmp_path.iterdir()]) == ("before", [path])


def test_a_journal_as_large_as_it_may_be_is_no_full_disk(tmp_path: Path) -> None:
    """The kernel takes what fits, and says why when it is given the rest."""
    files, path, before = Files(), tmp_path / "dev.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    descriptor = files.open_new(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(StateUnwritable, match="File too large; raise the limit of file sizes"):
            files.append(descriptor, path, "0123456789abcdef")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        os.close(descriptor)


def test_who_reads_a_state_that_is_replaced_reads_it_to_its_end(tmp_path: Path) -> None:
    """The file that was there is never written to: backups are links to it."""
    path = tmp_path / "state.json"
    Files().replace(path, b"before")
    with path.open("rb") as reading:
        Files().replace(path, b"after")
        assert (reading.read(), path.read_bytes()) == (b"before", b"after")


@pytest.mark.parametrize("step", ["write state.json", "rename state.json"])
def test_a_state_that_cannot_be_written_stays_as_it_was(step: str, tmp_path: Path) -> None:
    """And nothing is left beside it."""

    def before(what: str) -> None:
        if what == step:
            raise OSError(28, "No space left on device")

    path = tmp_path / "state.json"
    path.write_text("before")
    with pytest.raises(StateUnwritable, match="No space left on device"):
        Files(before).replace(path, b"after")
    assert (path.read_text(), [*tmp_path.iterdir()]) == ("before", [path])


def test_a_text_that_is_nested_too_deeply_is_called_that(tmp_path: Path) -> None:
    """Of how deep Python recurses nobody needs to hear."""
    deep, path = "[" * 200_000, tmp_path / "file"
    path.write_text(f'{{"journal": 1, "base": ""}}\n{deep}\n')
    with pytest.raises(StateBroken, match="nested too deeply") as raised:
        read_journal(path)
    assert "recursion" not in str(raised.value)
    with pytest.raises(StateBroken, match="nested too deeply") as raised:
        parse_checkpoint(deep, "s", path)
    assert "recursion" not in str(raised.value)
    path.write_text(deep)
    assert all("nested too deeply" in line and "recursion" not in line for line in check_state(path))
    (tmp_path / "Pulumi.yaml").write_text("[" * 5000)
    with pytest.raises(ProjectError, match=r"Pulumi.yaml is no YAML: ") as raised_by_project:
        load_project(tmp_path)
    assert "recursion" not in str(raised_by_project.value)


def test_a_file_system_that_takes_nothing_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so by no error; asked for ever, it would keep the stack locked."""
    answers = iter([4, 0])
    monkeypatch.setattr(os, "write", lambda _descriptor, _data: next(answers))
    with pytest.raises(StateUnwritable, match=r"can't be written: No space left on device; make room"):
        Files().replace(tmp_path / "state.json", b"0123456789")
