"""What the engine leaves to the official command line is refused by name, with the way out."""

from collections.abc import Callable

import pulumi
import pytest
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import resource_pb2

from locallb.engine.core.events import Severity
from locallb.engine.monitor import FEATURES, goal_of
from locallb.engine.state.errors import Unsupported
from tests.support.balancers import declare
from tests.support.engine import Bench, Thing

Options = pulumi.ResourceOptions
ADDRESS = {"address": "127.77.0.1"}


def other() -> pulumi.Resource:
    return Thing("LoopbackAddress", "other", ADDRESS)


def hook(_arguments: object) -> None:
    """Do nothing."""


OPTIONS: dict[str, Callable[[], pulumi.ResourceOptions]] = {
    "protect": lambda: Options(protect=True),
    "retain_on_delete": lambda: Options(retain_on_delete=True),
    "ignore_changes": lambda: Options(ignore_changes=["address"]),
    "replace_on_changes": lambda: Options(replace_on_changes=["address"]),
    "additional_secret_outputs": lambda: Options(additional_secret_outputs=["claim"]),
    "aliases": lambda: Options(aliases=[pulumi.Alias(name="former")]),
    "import_": lambda: Options(import_="x"),
    "deleted_with": lambda: Options(deleted_with=other()),
    "replace_with": lambda: Options(replace_with=[other()]),
    "replacement_trigger": lambda: Options(replacement_trigger=7),
    "hide_diffs": lambda: Options(hide_diffs=["address"]),
    "plugin_download_url": lambda: Options(plugin_download_url="https://example.com"),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_unsupported_option_is_refused_by_name(option: str, bench: Bench) -> None:
    """Nothing of that resource is done."""
    result = bench.engine().up(lambda: Thing("LoopbackAddress", "a", ADDRESS, OPTIONS[option]()))
    assert not result.ok
    what = f"locallb:index:LoopbackAddress resource 'a': the resource option {option}"
    assert [d.message for d in result.diagnostics] == [str(Unsupported(what))]
    assert ("create", "LoopbackAddress::a") not in bench.world.calls


def secret() -> object:
    return Thing("LoopbackAddress", "a", {"address": pulumi.Output.secret("hush")})


def reference() -> object:
    """Register an input that is a resource."""
    return Thing("Reachable", "a", {"address": other()})


def asset() -> object:
    """Register an input that is a file."""
    return Thing("Reachable", "a", {"address": pulumi.StringAsset("text")})


def archive() -> object:
    """Register an input that is an archive."""
    return Thing("Reachable", "a", {"address": pulumi.FileArchive(".")})


def read() -> object:
    return pulumi.CustomResource("locallb:index:Reachable", "a", {}, Options(id="x"))


def invoke() -> object:
    return pulumi.export("x", pulumi.runtime.invoke_output("locallb:index:getThing", {}))


def transform() -> None:
    pulumi.runtime.register_resource_transform(lambda _arguments: None)


def hooked() -> object:
    options = Options(hooks=pulumi.ResourceHookBinding(before_create=[pulumi.ResourceHook("h", hook)]))
    return Thing("LoopbackAddress", "a", ADDRESS, options)


def foreign() -> object:
    return pulumi.CustomResource("random:index:RandomId", "a", {})


def remote() -> object:
    """Use a component that a plugin makes."""
    return pulumi.ComponentResource("other:index:Thing", "a", {}, remote=True)


def exported_secret() -> object:
    return pulumi.export("x", pulumi.Output.secret("hush"))


PROGRAMS: list[tuple[Callable[[], object], str]] = [
    (secret, "property address: a secret"),
    (reference, "property address: a reference to a resource"),
    (asset, "property address: an asset"),
    (archive, "property address: an archive"),
    (read, "reading an existing resource"),
    (invoke, "the function locallb:index:getThing"),
    (transform, "a transform of all resources"),
    (hooked, "a resource hook"),
    (foreign, "the provider random of"),
    (remote, "a component or package that a plugin provides"),
    (exported_secret, "property x: a secret"),
]


@pytest.mark.parametrize(("program", "terms"), PROGRAMS, ids=[terms for _program, terms in PROGRAMS])
def test_an_unsupported_feature_is_refused_by_name(program: Callable[[], object], terms: str, bench: Bench) -> None:
    """In one sentence that points to the official command line."""
    result = bench.engine().up(lambda: program())  # noqa: PLW0108 programs give nothing
    assert not result.ok
    errors = [d.message for d in result.diagnostics if d.severity is Severity.ERROR]
    assert len(errors) == 1
    assert terms in errors[0]
    assert errors[0].endswith("isn't supported by the embedded engine; use `pulumi up`")


def test_a_secret_that_a_provider_gives_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not get into the state."""
    made = PropertyValue("hush", is_secret=True)
    monkeypatch.setattr("tests.support.engine.computed", lambda _kind, _inputs: {"claim": made})
    result = bench.engine().up(lambda: Thing("LoopbackAddress", "a", ADDRESS))
    assert "property claim: a secret" in result.diagnostics[0].message
    assert "hush" not in bench.state_path.read_text()


def test_the_features_of_the_official_command_line_are_announced() -> None:
    """Those that were recorded, by number."""
    assert sorted(FEATURES) == list(range(16))


def test_a_request_for_another_package_is_refused() -> None:
    """Packages from parameters have a reference instead of a name."""
    with pytest.raises(Unsupported, match="a component or package"):
        goal_of(resource_pb2.RegisterResourceRequest(type="a:b:C", name="d", packageRef="x"))


def test_two_configurations_of_one_provider_object_are_refused(bench: Bench) -> None:
    """One object can't be two; a function that makes one can (as the other tests do)."""
    spec = {"balancers": {"alpha": {"address": "127.77.0.1", "port": 80, "digest": "d1"}}, "explicit_provider": True}
    assert bench.engine().up(lambda: declare(spec)).ok
