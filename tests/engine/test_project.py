"""The project's and the stack's files: what is read, what is refused, and how it is said."""

import json
from pathlib import Path

import pulumi
import pytest
import yaml
from msgspec.structs import replace

from locallb.engine.state.errors import ProjectError, Unsupported
from locallb.engine.state.project import load_config, load_project
from locallb.sources.configuration import stack_settings
from tests.support.engine import Bench, World, make_project
from tests.support.stages import CHECKOUT

BACKEND = "backend: {url: 'file://./.state'}\n"


def write(folder: Path, text: str) -> Path:
    """Write a project file, with the backend's folder."""
    (folder / ".state").mkdir(exist_ok=True)
    (folder / "Pulumi.yaml").write_text(text)
    return folder


def test_a_project_is_read_with_absolute_paths(tmp_path: Path) -> None:
    """Relative ones belong to the project's folder, wherever the caller is."""
    text = f"name: p\nmain: src\nstackConfigDir: stacks\n{BACKEND}options: {{refresh: always}}\n"
    project = load_project(write(tmp_path, text), {})
    assert project.name == "p"
    assert project.root == tmp_path.resolve()
    assert project.main == tmp_path.resolve() / "src"
    assert project.stack_config_dir == tmp_path.resolve() / "stacks"
    assert project.backend == tmp_path.resolve() / ".state"
    assert project.refresh_always


def test_the_environment_overrides_the_backend(tmp_path: Path) -> None:
    """As with the official command line."""
    write(tmp_path, f"name: p\n{BACKEND}")
    (tmp_path / "else where").mkdir()
    project = load_project(tmp_path, {"PULUMI_BACKEND_URL": f"file://{tmp_path}/else%20where"})
    assert project.backend == tmp_path.resolve() / "else where"
    assert not project.refresh_always


def test_a_backend_in_the_home_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`file://~` is the official command line's default local backend."""
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, "name: p\nbackend: {url: 'file://~'}\n")
    assert load_project(tmp_path, {}).backend == tmp_path.resolve()


@pytest.mark.parametrize("url", ["s3://bucket", "https://api.pulumi.com", "azblob://x", ""])
def test_any_other_backend_is_refused_by_name(url: str, tmp_path: Path) -> None:
    """None means the Pulumi Cloud."""
    backend = f"backend: {{url: '{url}'}}\n" if url else ""
    with pytest.raises(Unsupported, match=url or "Pulumi Cloud"):
        load_project(write(tmp_path, f"name: p\n{backend}"), {})


BROKEN = {
    "a: [": r"is no YAML: line \d, column \d: \w",
    "name: p\nbackend: x: y\n": "is no YAML: line 2, column 11: mapping values are not allowed in this context",
    "name: p\nbackend: {url: a}\nname: q\n": r"line 3, column 1: the key \"name\" is there twice; remove one",
    "a: 2020-99-99": "is no YAML",
    "a: " + "[" * 2_000: "is no YAML: line 1: it is nested deeper than 200",
    "- a\n": "must hold keys and values",
    f"description: x\n{BACKEND}": "has no name",
    "name: p\nbackend: file\n": "backend must hold keys and values",
    "name: p\nbackend: {url: 'file://./nowhere'}\n": "doesn't exist; make it with `mkdir -p",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_project_file_is_reported_in_one_sentence(text: str, tmp_path: Path) -> None:
    """With the file and what to do."""
    with pytest.raises(ProjectError, match=BROKEN[text]) as caught:
        load_project(write(tmp_path, text), {})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        (b"config:\n  a: 1\n  a: 2\n", 'line 3, column 3: the key "a" is there twice; remove one'),
        (b"config:\n  pins: {x: [1], y: [2], x: [3]}\n", 'column 26: the key "x" is there twice; remove one'),
        (b"config: {} # caf\xe9\n", "isn't UTF-8 (byte 17); save it as UTF-8"),
    ],
)
def test_a_configuration_that_says_two_things_or_none_is_reported(text: bytes, stated: str, tmp_path: Path) -> None:
    """No value counts silently, at no depth."""
    project = make_project(tmp_path)
    project.stack_file("dev").write_bytes(text)
    with pytest.raises(ProjectError) as caught:
        load_config(project, "dev")
    assert str(caught.value).endswith(stated)


def test_a_key_may_be_in_two_objects_and_stand_over_a_merged_one(tmp_path: Path) -> None:
    """Only an object's own keys count."""
    project = make_project(tmp_path)
    project.stack_file("dev").write_text("config:\n  a: &a {x: 1}\n  b: {<<: *a, x: 2}\n")
    assert load_config(project, "dev") == {"local-lb:a": '{"x":1}', "local-lb:b": '{"x":2}'}


def test_a_missing_or_unreadable_project_file_is_reported(tmp_path: Path) -> None:
    """With the way out."""
    with pytest.raises(ProjectError, match="doesn't exist"):
        load_project(tmp_path, {})
    (tmp_path / "Pulumi.yaml").mkdir()
    with pytest.raises(ProjectError, match="can't be read"):
        load_project(tmp_path, {})


def test_what_a_project_declares_stands_for_what_a_stack_lacks(tmp_path: Path) -> None:
    """As the official command line has it: a value, a default, either in short; its own keys are left to it."""
    declared = "{a: 1, o:b: {value: [x]}, c: {type: boolean, default: false}, d: x, 'pulumi:tags': {value: {t: x}}}"
    text = f"name: p\n{BACKEND}config: {declared}\ntemplate: {{description: x}}\n"
    project = load_project(write(tmp_path, text), {})
    project.stack_file("dev").write_text("config: {'p:d': y, e: z}\n")
    given = {"p:a": "1", "o:b": '["x"]', "p:c": "false", "p:d": "y", "p:e": "z"}
    assert load_config(project, "dev") == given


def test_a_key_that_a_project_requires_is_missed(tmp_path: Path) -> None:
    """In one sentence, with both files; a secret is refused."""
    declared = "config: {a: {type: string, description: x}}\n"
    project = load_project(write(tmp_path, f"name: p\n{BACKEND}{declared}"), {})
    project.stack_file("dev").write_text("config: {}\n")
    with pytest.raises(ProjectError, match=r"Pulumi.dev.yaml has no p:a, which .*/Pulumi.yaml declares; give it"):
        load_config(project, "dev")
    project.stack_file("dev").write_text("config: {a: x}\n")
    assert load_config(project, "dev") == {"p:a": "x"}
    with pytest.raises(Unsupported, match="config: a: a secret value"):
        load_project(write(tmp_path, f"name: p\n{BACKEND}config: {{a: {{type: string, secret: true}}}}\n"), {})


STACKS = {
    "plain": "",
    "mapped": "  local-lb:portMapping: loopback\n",
    "containers": "  local-lb:runtime: docker\n  local-lb:network: publish\n",
    "shared": "  local-lb:proxies: {mode: shared, count: 2}\n  local-lb:localhost: true\n",
    "certificates": "  local-lb:certificates: local\n",
}


@pytest.mark.parametrize("stack", STACKS)
def test_what_this_project_declares_are_the_defaults(stack: str, tmp_path: Path) -> None:
    """Its `config` shows them to users of `pulumi config` and changes nothing, whatever a stack sets."""
    project = load_project(write(tmp_path, (CHECKOUT / "Pulumi.yaml").read_text()), {})
    assert project.config
    assert all(read is not None for _, read in project.config)
    project.stack_file("dev").parent.mkdir()
    project.stack_file("dev").write_text(f"config:\n  local-lb:sources: [{{manifests: m}}]\n{STACKS[stack]}")
    bare = load_config(replace(project, config=()), "dev")
    assert len(load_config(project, "dev")) > len(bare)
    assert stack_settings(load_config(project, "dev")) == stack_settings(bare)


def test_the_template_of_this_project_makes_a_stack_that_can_be_used(tmp_path: Path) -> None:
    """What `pulumi new` asks for has a description, and a default that works as it is written: as a text."""
    text = (CHECKOUT / "Pulumi.yaml").read_text()
    template = yaml.safe_load(text)["template"]
    assert {"displayName", "description", "quickstart", "config"} == set(template)
    assert all(each["description"] for each in template["config"].values())
    project = load_project(write(tmp_path, text), {})
    project.stack_file("dev").parent.mkdir()
    config = {key: each["default"] for key, each in template["config"].items()}
    project.stack_file("dev").write_text(yaml.safe_dump({"config": config}))
    example = (CHECKOUT / "stacks/Pulumi.dev.yaml").read_text()
    templated = stack_settings(load_config(project, "dev"))
    project.stack_file("dev").write_text(example)
    assert templated == stack_settings(load_config(project, "dev"))


@pytest.mark.parametrize(
    ("runtime", "stated"),
    [("", "python"), ("runtime: yaml\n", "yaml"), ("runtime: {name: nodejs, options: {}}\n", "nodejs")],
)
def test_a_project_says_in_which_language_its_program_is(runtime: str, stated: str, tmp_path: Path) -> None:
    """One in another language may have configuration: only its program reads that."""
    more = "" if stated == "python" else "config: {a: 1}\n"
    assert load_project(write(tmp_path, f"name: p\n{BACKEND}{runtime}{more}"), {}).runtime == stated


def test_configuration_is_given_as_programs_read_it(tmp_path: Path) -> None:
    """Texts as they are, everything else as JSON, keys with their namespace; the file isn't touched."""
    project = make_project(tmp_path)
    path = project.stack_file("dev")
    path.write_text(
        "encryptionsalt: v1:x\nconfig:\n  local-lb:pools: [{name: a}]\n  plain: text\n  n: 3\n  on: true\n  off: yes\n"
    )
    before = path.stat()
    config = load_config(project, "dev")
    assert config == {
        "local-lb:pools": '[{"name":"a"}]',
        "local-lb:plain": "text",
        "local-lb:n": "3",
        "local-lb:on": "true",
        "local-lb:off": "yes",
    }
    assert path.stat() == before


def test_a_program_sees_its_configuration_and_surroundings(tmp_path: Path) -> None:
    """Through the SDK, as under the official command line."""
    project = make_project(tmp_path)
    project.stack_file("dev").write_text("config:\n  local-lb:pools: [{name: a}]\n  other:n: 3\n")
    observed: dict[str, object] = {}

    def program() -> None:
        observed["pools"] = pulumi.Config("local-lb").get_object("pools")
        observed["n"] = pulumi.Config("other").get_int("n")
        observed["who"] = (pulumi.get_organization(), pulumi.get_project(), pulumi.get_stack())
        observed["root"] = pulumi.runtime.get_root_directory()
        observed["dry"] = pulumi.runtime.is_dry_run()

    Bench(project, World()).engine().preview(program)
    assert observed == {
        "pools": [{"name": "a"}],
        "n": 3,
        "who": ("organization", "local-lb", "dev"),
        "root": str(project.root),
        "dry": True,
    }


def test_a_missing_stack_names_the_file_to_create_and_the_stacks_that_exist(tmp_path: Path) -> None:
    """Nothing is made."""
    project = make_project(tmp_path)
    with pytest.raises(ProjectError, match="stacks that exist: dev") as caught:
        load_config(project, "prod")
    assert str(project.stack_file("prod")) in str(caught.value)
    with pytest.raises(ProjectError, match="can't be the name of a stack"):
        load_config(project, "../dev")


CONFIGS = {
    "config: {a: {secure: v1:x}}": "a secret value",
    "config: {a: [{b: {secure: v1:x}}]}": "a secret value",
    "environment: [x]\n": "environment",
    "config: {a: }": "has no value",
    "config: {a: [2020-01-01]}": "put it in quotes",
    "config: {7: a}": "put it in quotes",
    "config: {a: &a [*a]}": "put it in quotes",
    "config: 7": "must hold keys and values",
}


@pytest.mark.parametrize("text", CONFIGS)
def test_configuration_that_cannot_be_used_is_refused(text: str, tmp_path: Path) -> None:
    """With the file and the key."""
    project = make_project(tmp_path)
    project.stack_file("dev").write_text(text)
    with pytest.raises((ProjectError, Unsupported), match=CONFIGS[text]) as caught:
        load_config(project, "dev")
    assert str(project.stack_file("dev")) in str(caught.value)


def test_a_default_provider_gets_its_configuration_from_the_stack(tmp_path: Path) -> None:
    """Keys of the package's namespace."""
    project = make_project(tmp_path)
    project.stack_file("dev").write_text("config:\n  locallb:region: here\n")
    bench = Bench(project, World())
    bench.engine().up(
        lambda: pulumi.CustomResource("locallb:index:Reachable", "a", {"address": "x"}, pulumi.ResourceOptions())
    )
    provider = next(item for item in bench.raw()["resources"] if "providers" in item["type"])
    assert json.dumps([provider["inputs"], provider["outputs"]]) == '[{"region": "here"}, {"region": "here"}]'
