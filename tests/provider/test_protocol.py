"""The provider as an engine meets it: previews, unknown values, odd states, and the plugin of the Pulumi CLI."""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format, struct_pb2
from msgspec.structs import replace
from pulumi.provider.experimental import provider as protocol
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc
from pulumi.runtime.rpc import UNKNOWN

import locallb
from locallb.components.arguments import Arguments, key_of
from locallb.engine.protocol_providers import LoopPool, ProtocolHandle
from locallb.engine.provider_handles import DirectHandle, Handle
from locallb.engine.state.errors import StepError
from locallb.engine.state.resource import ResourceState
from locallb.model.texts import owner_fields
from locallb.package import generate as package
from locallb.provider import ProviderError, generate
from locallb.provider.plugin import Dispatcher
from locallb.resources import codec
from locallb.resources.wire import wrapped
from tests.support.provider import Driver, Wanted, owner, urn


def test_what_is_unknown_is_written_as_the_protocol_has_it() -> None:
    """By an engine and a provider that don't load the SDK for it."""
    assert codec.UNKNOWN == UNKNOWN


@pytest.mark.checkout
def test_generated_files_match_the_schema() -> None:
    """Types and documentation say what the schema says, and the package's schema what that and the keys say."""
    assert generate.stale() == {}
    for path, text in package.texts().items():
        assert path.read_text() == text, "`python -m locallb.package.generate` writes it"


def test_the_package_has_the_component_beside_all_resources() -> None:
    """With every key and output described; only sources are required."""
    schema = json.loads(package.SCHEMA.read_text())
    component = schema["resources"].pop("locallb:index:LoadBalancers")
    assert schema["resources"] == json.loads(generate.SCHEMA.read_text())["resources"]
    assert component["requiredInputs"] == ["sources"]
    assert component["inputProperties"].keys() == {key_of(name) for name in Arguments.__annotations__}
    assert component["properties"].keys() == {"addresses", "urls", "hostnames", "ports"}
    described = [*component["inputProperties"].values(), *component["properties"].values()]
    assert all(value["description"] for value in described)


def test_the_schema_is_what_the_engine_gets(driver: Driver) -> None:
    """GetSchema gives schema.json, every property of a resource described."""
    schema = json.loads(asyncio.run(driver.provider.get_schema(protocol.GetSchemaRequest(0))).schema or "")
    assert schema == json.loads(generate.SCHEMA.read_text())
    for resource in schema["resources"].values():
        assert set(resource["inputProperties"]) <= set(resource["properties"]) >= set(resource["required"])
        optional = set(resource["inputProperties"]) - set(resource["requiredInputs"])
        assert set(resource["properties"]) - set(resource["required"]) == optional
        assert all(value["description"] for value in resource["properties"].values())


def test_a_preview_changes_nothing_and_foresees_what_is_certain(driver: Driver, wanted: Wanted, home: Path) -> None:
    """The claim's ledger, the directory and the bootstrap's digest are known; pid and proof are not."""
    address = {"address": wanted.address, "owner": wanted.config["owner"], "sharing": ""}
    assert driver.create("LoopbackAddress", address, preview=True)["claim"] == str(home / "ledger")
    config = driver.create("ProxyConfig", wanted.config, preview=True)
    assert config["bootstrap"] == wanted.process["bootstrap"]
    process = driver.create("EnvoyProcess", wanted.process, preview=True)
    assert (process["pid"], process["started"], process["binary"]) == (UNKNOWN, UNKNOWN, UNKNOWN)
    proof = driver.create("Reachable", {**wanted.reachable(process), "process": UNKNOWN}, preview=True)
    assert (proof["process"], proof["ports"]) == (UNKNOWN, UNKNOWN)
    assert list(home.iterdir()) == []


def test_a_preview_of_an_update_keeps_the_process(driver: Driver, wanted: Wanted, home: Path) -> None:
    """Changed listeners don't make the process unknown, so that no replacement is foreseen that won't happen."""
    state = {**wanted.config, "directory": "/d", "bootstrap": wanted.process["bootstrap"]}
    config = driver.update("ProxyConfig", state, {**wanted.config, "name": "other"}, preview=True)
    assert config["bootstrap"] == state["bootstrap"]
    process = {**wanted.process, "pid": 7, "started": "b.1", "binary": "/e"}
    new = {**wanted.process, "owner": {**wanted.process["owner"], "uid": "u2"}}
    assert driver.update("EnvoyProcess", process, new, preview=True) == {**process, **new}
    assert list(home.iterdir()) == []


def test_unknown_inputs_are_accepted_wherever_they_are(driver: Driver, wanted: Wanted) -> None:
    """Also inside of objects: the whole property is then unknown, and counts as changed."""
    given = {**wanted.config, "files": {"lds.json": UNKNOWN}, "owner": UNKNOWN}
    assert driver.check("ProxyConfig", given) == []
    assert driver.create("ProxyConfig", given, preview=True) == {**given, "directory": UNKNOWN, "bootstrap": UNKNOWN}
    state = {**wanted.config, "directory": "/d", "bootstrap": "b"}
    assert driver.diff("ProxyConfig", state, given).diffs == ["files", "owner"]
    assert driver.check("Reachable", {**wanted.reachable({"pid": 1, "started": ""}), "probes": UNKNOWN}) == []


def test_a_process_is_replaced_old_before_new(driver: Driver, wanted: Wanted) -> None:
    """Bootstrap and proxy need another process; another version takes over in place, and an owner changes nothing."""
    state = {**wanted.process, "pid": 7, "started": "b.1", "binary": "/e"}
    for name in ("bootstrap", "proxy"):
        difference = driver.diff("EnvoyProcess", state, {**wanted.process, name: "x"})
        assert (difference.replaces, difference.delete_before_replace) == ([name], True)
    upgraded = {**wanted.process, "version": "x"}
    assert driver.diff("EnvoyProcess", state, upgraded).replaces == []
    assert driver.update("EnvoyProcess", state, upgraded, preview=True)["pid"] == UNKNOWN
    owners = {**wanted.process["owner"], "uid": "u2"}
    difference = driver.diff("EnvoyProcess", state, {**wanted.process, "owner": owners})
    assert (difference.diffs, difference.replaces, difference.delete_before_replace) == (["owner"], [], False)


def test_a_state_of_another_version_is_compared_not_refused(driver: Driver, wanted: Wanted) -> None:
    """A property that an old state lacks, or has in another type, is one that changes."""
    state = {**wanted.config, "files": "none", "colour": "red"}
    del state["versions"]
    assert driver.diff("ProxyConfig", state, wanted.config).diffs == ["files", "versions"]


def test_numbers_arrive_as_floats_and_must_be_whole(driver: Driver, wanted: Wanted) -> None:
    """The protocol knows floats only: an integral one is an int, another isn't taken for one."""
    state = {**wanted.process, "pid": 7.0, "started": "b.1", "binary": "/e"}
    assert driver.update("EnvoyProcess", state, wanted.process)["pid"] == 7
    assert driver.check("EnvoyProcess", {**wanted.process, "version": 1.4}) == [
        ("version", "must be a string, not a number")
    ]


def test_a_secret_is_read_as_its_value(driver: Driver, wanted: Wanted) -> None:
    """Marks of secrets and dependencies make no difference between equal values."""
    state = wrapped({**wanted.process, "pid": 7, "started": "b.1", "binary": "/e"})
    news = {**wrapped(wanted.process), "version": PropertyValue(wanted.process["version"], is_secret=True)}
    request = protocol.DiffRequest(urn("EnvoyProcess"), "id", state, news, [])
    assert asyncio.run(driver.provider.diff(request)).changes is False


def test_a_secret_is_refused_without_its_value(driver: Driver, wanted: Wanted) -> None:
    """Although it couldn't be used anyway, of which the sentence would name it."""
    owner = wanted.config["owner"]
    news = {"address": PropertyValue("hunter2", is_secret=True), **wrapped({"owner": owner, "sharing": ""})}
    request = protocol.CheckRequest(urn("LoopbackAddress"), {}, news, b"")
    failures = asyncio.run(driver.provider.check(request)).failures or []
    assert [failure.property for failure in failures] == ["address"]
    assert "hunter2" not in failures[0].reason


def test_ignored_changes_are_no_changes(driver: Driver, wanted: Wanted) -> None:
    """The engine's ignoreChanges are left out of the comparison."""
    state = wrapped({**wanted.process, "pid": 7, "started": "b.1", "binary": "/e"})
    request = protocol.DiffRequest(
        urn("EnvoyProcess"), "id", state, wrapped({**wanted.process, "version": "2"}), ["version"]
    )
    assert asyncio.run(driver.provider.diff(request)).changes is False


def test_an_import_and_an_unknown_type_are_refused_in_one_sentence(driver: Driver) -> None:
    """What the provider can't do is said."""
    with pytest.raises(ProviderError, match="can't be imported"):
        driver.read("LoopbackAddress", {})
    with pytest.raises(ProviderError, match="no resource locallb:index:Teapot"):
        driver.create("Teapot", {})


ODD: Mapping[str, Mapping[str, Any]] = {
    "right": {"address": "127.77.0.1", "sharing": ""},
    "missing": {"address": "127.77.0.1"},
    "superfluous": {"address": "127.77.0.1", "sharing": "", "colour": "red"},
    "another type": {"address": ["127.77.0.1"], "sharing": {"a": 1}},
    "null": {"address": None, "sharing": True},
    "a number": {"address": 7, "sharing": 1.5},
    "no address": {"address": "localhost", "sharing": ""},
    "unknown": {"address": UNKNOWN, "sharing": UNKNOWN},
}


@pytest.mark.parametrize("odd", ODD)
def test_the_embedded_engine_and_the_official_one_get_the_same_answers(
    driver: Driver, wanted: Wanted, odd: str, home: Path
) -> None:
    """Asked directly or by the protocol: the same inputs, states and sentences."""
    del home
    loops, provider = LoopPool(), driver.provider
    assert isinstance(provider, Dispatcher)
    inputs = {"owner": wanted.config["owner"], **ODD[odd]}
    old = ResourceState(
        urn("LoopbackAddress"),
        "locallb:index:LoopbackAddress",
        custom=True,
        outputs={**inputs, "sharing": "x"},
        id="i",
    )

    def requested(handle: Handle) -> list[object]:
        new = replace(old, inputs=inputs)
        return [
            _answer(partial(handle.check, old.urn, {}, inputs)),
            _answer(partial(handle.diff, old, inputs)),
            _answer(partial(handle.create, new, preview=True)),
            _answer(partial(handle.update, old, new, preview=True)),
            _answer(partial(handle.read, replace(old, outputs={}))),
            _answer(partial(handle.read, old)),
        ]

    try:
        assert requested(DirectHandle(provider.direct)) == requested(ProtocolHandle(provider, loops))
    finally:
        loops.close()


def _answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except StepError as error:
        return str(error)


class Plugin:
    """The plugin as the CLI runs it."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, str(Path(locallb.__file__).parent / "provider"), "127.0.0.1:1"]
        self.process = subprocess.Popen(
            command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ""}
        )
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self._port()}")
        self.stub: Any = provider_pb2_grpc.ResourceProviderStub(self.channel)

    def _port(self) -> int:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline() if selector.select(timeout=30) else b""
        if not line.strip().isdigit():
            self.process.terminate()
            raise AssertionError(f"the plugin told no port: {self.process.communicate(timeout=10)[1].decode()}")
        return int(line)

    def close(self) -> None:
        self.channel.close()
        self.process.terminate()
        self.process.communicate(timeout=10)


@pytest.fixture
def plugin(home: Path, tmp_path: Path) -> Iterator[Plugin]:
    """Run the plugin in a directory that isn't the project's."""
    del home
    running = Plugin(tmp_path)
    yield running
    running.close()


def structure(properties: dict[str, Any]) -> struct_pb2.Struct:
    return json_format.ParseDict(properties, struct_pb2.Struct())


def test_the_plugin_speaks_the_protocol_and_fails_in_one_sentence(plugin: Plugin, root: Path) -> None:
    """Configure, check, create, diff as in the recordings; an error is the sentence, without class and traceback."""
    configured = plugin.stub.Configure(provider_pb2.ConfigureRequest(acceptSecrets=True, acceptResources=True))
    assert configured.supportsPreview
    mine = {"address": "127.77.0.5", "owner": dict(owner_fields(owner(root))), "sharing": ""}
    theirs = {"address": "127.77.0.5", "owner": dict(owner_fields(owner(root, "other"))), "sharing": ""}
    name = urn("LoopbackAddress")
    checked = plugin.stub.Check(provider_pb2.CheckRequest(urn=name, news=structure(mine)))
    assert (json_format.MessageToDict(checked.inputs), list(checked.failures)) == (mine, [])
    created = plugin.stub.Create(provider_pb2.CreateRequest(urn=name, properties=structure(mine)))
    assert created.id == "127.77.0.5"
    compared = plugin.stub.Diff(
        provider_pb2.DiffRequest(urn=name, id=created.id, olds=created.properties, news=structure(theirs))
    )
    assert (compared.changes, list(compared.diffs)) == (provider_pb2.DiffResponse.DIFF_SOME, ["owner"])
    with pytest.raises(grpc.RpcError) as error:
        plugin.stub.Create(provider_pb2.CreateRequest(urn=name, properties=structure(theirs)))
    reported: Any = error.value
    assert reported.details().startswith("127.77.0.5 belongs to local/default/web of shop/dev at ")
    assert "\n" not in reported.details()
    assert "Unexpected" not in reported.details()
    plugin.stub.Delete(provider_pb2.DeleteRequest(urn=name, id=created.id, properties=created.properties))


def test_a_defect_in_the_plugin_keeps_its_traceback(plugin: Plugin) -> None:
    """What isn't meant for the user is for whoever repairs it."""
    with pytest.raises(grpc.RpcError) as error:
        plugin.stub.Create(provider_pb2.CreateRequest(urn=urn("LoopbackAddress"), properties=structure({})))
    reported: Any = error.value
    assert "CodecError" in reported.details() or "is missing" in reported.details()


@pytest.fixture
def of_project(home: Path, root: Path) -> Iterator[Plugin]:
    """Run the plugin below a project's directory, as the CLI does where `main` names one."""
    del home
    (root / "Pulumi.yaml").write_text("name: shop\nruntime: yaml\n")
    (root / "program").mkdir()
    running = Plugin(root / "program")
    yield running
    running.close()


def claim(root: Path, name: str = "web", address: str = "127.77.0.5") -> dict[str, Any]:
    return {"address": address, "owner": dict(owner_fields(owner(root, name))), "sharing": ""}


def test_the_plugin_is_of_the_project_in_whose_directory_it_runs(of_project: Plugin, root: Path, home: Path) -> None:
    """Wherever the plugin itself is: a deletion is done."""
    name = urn("LoopbackAddress")
    state = Driver(root).create("LoopbackAddress", claim(root))
    of_project.stub.Delete(provider_pb2.DeleteRequest(urn=name, id="127.77.0.5", properties=structure(state)))
    assert not claimed(home)


def test_a_deletion_that_is_skipped_is_never_reported_as_done(of_project: Plugin, home: Path, tmp_path: Path) -> None:
    """Of what another project that still exists has: the state is a copy of that one's."""
    original = tmp_path / "original"
    original.mkdir()
    state = Driver(original).create("LoopbackAddress", claim(original))
    request = provider_pb2.DeleteRequest(urn=urn("LoopbackAddress"), id="127.77.0.5", properties=structure(state))
    with pytest.raises(grpc.RpcError) as error:
        of_project.stub.Delete(request)
    reported: Any = error.value
    assert f"of the project at {original}, which still exists" in reported.details()
    assert claimed(home)


def claimed(home: Path) -> list[str]:
    return [path.name for path in (home / "ledger").glob("127.*")]


def test_a_resource_that_is_replaced_without_need_stays(driver: Driver, root: Path, home: Path) -> None:
    """As `pulumi state taint` and `pulumi up --replace` have it: the new one is what the old one was."""
    for shared in (claim(root), {**claim(root), "sharing": "edge"}):
        old = Driver().create("LoopbackAddress", claim(root))
        driver.create("LoopbackAddress", shared)
        driver.delete("LoopbackAddress", old, "127.77.0.5")
        assert claimed(home)


def test_a_resource_that_needs_another_one_is_deleted(driver: Driver, root: Path, home: Path) -> None:
    """Also if both were made by one update; and so is one that no creation of this update took over."""
    old = Driver().create("LoopbackAddress", claim(root))
    driver.create("LoopbackAddress", claim(root, address="127.77.0.6"))
    driver.delete("LoopbackAddress", old, "127.77.0.5")
    assert [name.partition("~")[0] for name in claimed(home)] == ["127.77.0.6"]


def test_a_difference_of_a_map_names_its_entries(driver: Driver, wanted: Wanted) -> None:
    """So that the CLI shows one file, and not all of them; of another property it is the property.

    Where its load balancer shows the change, nothing is: the path has no value on either side.
    """
    more = {**wanted.config, "files": {**wanted.config["files"], "eds-new.json": "{}"}}
    fewer = {**wanted.config, "files": {**wanted.config["files"], "lds.json": "{}"}, "shared": True}
    for old, new, expected in (
        (wanted.config, more, {'files["eds-new.json"]': "ADD"}),
        (more, wanted.config, {'files["eds-new.json"]': "DELETE"}),
        (wanted.config, fewer, {'files["lds.json"]': "UPDATE", "shared": "UPDATE"}),
    ):
        found = driver.diff("ProxyConfig", {**old, "directory": "/d", "bootstrap": "b"}, new).detailed_diff or {}
        assert {path: each.kind.name for path, each in found.items()} == expected
    changed = {**more, "versions": {"lds": "new", "cds": "new"}}
    hidden = driver.diff("ProxyConfig", {**wanted.config, "directory": "/d", "bootstrap": "b"}, changed)
    assert (hidden.changes, list(hidden.detailed_diff or {})) == (True, ["__shownElsewhere"])
    other = {**wanted.config, "proxy": "0" * 12}
    found = (
        driver.diff("ProxyConfig", {**wanted.config, "directory": "/d", "bootstrap": "b"}, other).detailed_diff or {}
    )
    assert {path: each.kind.name for path, each in found.items()} == {"proxy": "UPDATE_REPLACE"}
