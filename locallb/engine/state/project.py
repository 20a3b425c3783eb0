"""The project's and the stacks' own files, read as the official command line reads them.

`Pulumi.yaml` and `Pulumi.<stack>.yaml` are never written here. What this engine can't honour is refused by name.
"""

import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import yaml
from msgspec import Struct

from locallb import safe_files
from locallb.engine.state.errors import EngineError, ProjectError, Unsupported, parsing_problem
from locallb.engine.state.values import Value
from locallb.model.errors import refusal
from locallb.patterns import pattern
from locallb.safe_files import load_yaml

BACKEND_VARIABLE = "PULUMI_BACKEND_URL"
_LARGEST = 8 << 20
"""Bytes of a project's or a stack's file."""
_NAME = pattern(r"(?!\.\.?$)[A-Za-z0-9_.-]{1,100}")
"""Of projects and stacks, as the official command line has it, but for `.` and `..`: both are directories elsewhere."""


class _Loader(yaml.CSafeLoader):
    """Reads YAML as the official command line does.

    Only `true` and `false` are booleans, `on` and `yes` are texts; a key that is there twice is a mistake.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        """Read an object. Raises ConstructorError if one of its own keys is there twice."""
        observed: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in observed:
                problem = f'the key "{key.value}" is there twice; remove one'
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            observed.add(key.value)
        return super().construct_mapping(node, deep)


_BOOLEAN = "tag:yaml.org,2002:bool"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOLEAN]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOLEAN, re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF"))


_OF_PULUMI = "pulumi:"
"""How keys of a project begin that the official command line writes for itself, as `pulumi new` does."""
PYTHON = "python"
"""The runtime of programs that this engine runs."""


class Project(Struct, frozen=True):
    """A Pulumi project with a file backend.

    `root` is the folder of `Pulumi.yaml`, `main` the program's, `stack_config_dir` that of the stacks' files;
    `backend` is the folder that holds `.pulumi`; all paths are absolute. `runtime` is the language of the program.
    `config` has the keys that the project declares for each stack, with their namespace, and the text that a stack
    without the key gets; None where it must have one.
    """

    name: str
    root: Path
    main: Path
    stack_config_dir: Path
    backend: Path
    refresh_always: bool = False
    runtime: str = PYTHON
    config: tuple[tuple[str, str | None], ...] = ()

    def stack_file(self, stack: str) -> Path:
        """Return the path of a stack's configuration."""
        return self.stack_config_dir / f"Pulumi.{stack}.yaml"

    def state_file(self, stack: str) -> Path:
        """Return the path of a stack's state."""
        return self.backend / ".pulumi" / "stacks" / self.name / f"{stack}.json"

    def stacks(self) -> tuple[str, ...]:
        """List the stacks that have a configuration."""
        files = self.stack_config_dir.glob("Pulumi.*.yaml")
        return tuple(sorted(path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in files))


def load_project(root: Path, environment: Mapping[str, str] = os.environ) -> Project:
    """Read `Pulumi.yaml` in a folder. Raises ProjectError or Unsupported."""
    root = root.resolve()
    path = root / "Pulumi.yaml"
    raw = _read_yaml(path)
    name = raw.get("name")
    if name is None:
        raise ProjectError(f"{path} has no name; add a line such as `name: local-lb`")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ProjectError(f"{path}: name is {name!r}; use letters, digits, '-', '_' and '.', as in `name: local-lb`")
    runtime = _runtime(raw.get("runtime"))
    declared = _section(raw, "config", path) if runtime == PYTHON else {}
    configured = environment.get(BACKEND_VARIABLE) or _text(_section(raw, "backend", path).get("url"))
    return Project(
        name=name,
        root=root,
        main=root / (_text(raw.get("main")) or "."),
        stack_config_dir=root / (_text(raw.get("stackConfigDir")) or "."),
        backend=_backend(configured, root, path),
        refresh_always=_section(raw, "options", path).get("refresh") == "always",
        runtime=runtime,
        config=tuple(
            (namespaced(key, name), _declared_value(value, f"{path}: config: {key}"))
            for key, value in declared.items()
            if not key.startswith(_OF_PULUMI)
        ),
    )


def namespaced(key: str, project: str) -> str:
    """Return a key with its namespace, which is the project's where none is written."""
    return key if ":" in key else f"{project}:{key}"


def _declared_value(declared: Value, what: str) -> str | None:
    """Return the text for stacks that don't have a key. Its type is left to the program, and to `pulumi`."""
    if not isinstance(declared, dict):
        return _config_text(declared, what)
    if declared.get("secret"):
        raise Unsupported(f"{what}: a secret value")
    value = declared.get("value", declared.get("default"))
    return None if value is None else _config_text(value, what)


def _runtime(value: Value) -> str:
    """Return the language of the program; a file that says none is left to Python."""
    return _text(value.get("name") if isinstance(value, dict) else value) or PYTHON


def _backend(url: str, root: Path, path: Path) -> Path:
    parts = urlsplit(url)
    if parts.scheme != "file":
        given = url or "none, which means Pulumi Cloud"
        raise Unsupported(
            f"the backend ({given}; only file:// ones are, set by `backend: {{url: file://./.state}}` in {path} "
            f"or {BACKEND_VARIABLE})"
        )
    place = unquote(parts.netloc + parts.path)
    try:
        folder = Path(place).expanduser() if place.startswith("~") else root / place
    except RuntimeError:
        raise ProjectError(
            f"the backend's folder {place} needs a home directory; write another path in {path}"
        ) from None
    if not folder.is_dir():
        raise ProjectError(f"the backend's folder {folder} doesn't exist; make it with `mkdir -p {folder}`")
    return folder.resolve()


def require_stack(project: Project, stack: str) -> None:
    """Check that a stack has a configuration or a state. Raises ProjectError."""
    if not any(map(os.path.lexists, (project.stack_file(stack), project.state_file(stack)))):
        raise _unknown(project, stack)


def _unknown(project: Project, stack: str) -> ProjectError:
    existing = ", ".join(project.stacks()) or "none"
    from difflib import get_close_matches  # noqa: PLC0415 - only mistakes need it

    near = get_close_matches(_bare(stack).lower(), project.stacks(), n=1)
    intended = f" did you mean {near[0]!r}?" if near else f" create {project.stack_file(stack)}"
    return ProjectError(f"there is no stack {stack!r}:{intended} (stacks that exist: {existing})")


def _bare(stack: str) -> str:
    """Return a stack's name where that of its file was given."""
    return Path(stack).name.removeprefix("Pulumi.").removesuffix(".yaml")


def state_file(root: Path, stack: str) -> Path | None:
    """Return the path of a stack's state, for programs; None where the backend keeps no files here."""
    try:
        return load_project(root).state_file(stack)
    except EngineError:
        return None


def check_stack_name(stack: str) -> None:
    """Check that a stack may be called so. Raises ProjectError."""
    if not _NAME.fullmatch(stack):
        raise ProjectError(
            f"{stack!r} can't be the name of a stack; use letters, digits, '-', '_' and '.',"
            f" such as {_bare(stack) if _NAME.fullmatch(_bare(stack)) else 'dev'}"
        )


def load_config(project: Project, stack: str, text: bytes | None = None) -> dict[str, str]:
    """Read a stack's configuration: `namespace:key` to a text, objects as JSON, as programs get it.

    What the project declares stands for keys that the stack doesn't have. `text` is read in place of the file's.

    Raises ProjectError when there is no file or it can't be used, Unsupported for secrets and environments.
    """
    check_stack_name(stack)
    path = project.stack_file(stack)
    if not os.path.lexists(path):
        raise _unknown(project, stack)
    raw = _read_yaml(path, text)
    if raw.get("environment"):
        raise Unsupported(f"{path}: environment")
    config: dict[str, str] = {}
    for key, value in _section(raw, "config", path).items():
        config[namespaced(key, project.name)] = _config_text(value, f"{path}: {key}")
    for key, default in project.config:
        if default is None and key not in config:
            raise ProjectError(f"{path} has no {key}, which {project.root / 'Pulumi.yaml'} declares; give it a value")
        config.setdefault(key, default or "")
    return config


def _config_text(value: Value, what: str) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        raise ProjectError(f"{what} has no value; give it one or remove the key")
    try:
        if _has_secret(value):
            raise Unsupported(f"{what}: a secret value")
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):  # no JSON, or in itself
        raise ProjectError(f"{what} holds something that is neither text, number nor list; put it in quotes") from None


def _has_secret(value: Value) -> bool:
    if isinstance(value, dict):
        return set(value) == {"secure"} or any(_has_secret(item) for item in value.values())
    return isinstance(value, list) and any(_has_secret(item) for item in value)


def _read_yaml(path: Path, data: bytes | None = None) -> dict[str, Value]:
    """Read a file, or `data` in its place. Raises ProjectError."""
    try:
        if data is None:
            data = safe_files.read_if_present(path, _LARGEST)
        raw = None if data is None else parsed(data)
    except PermissionError:
        raise ProjectError(f"{path} can't be read: Permission denied; give this user the right to read it") from None
    except OSError as error:
        raise ProjectError(f"{path} can't be read: {refusal(error)}") from None
    except UnicodeDecodeError as error:
        raise ProjectError(f"{path} isn't UTF-8 (byte {error.start + 1}); save it as UTF-8") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: too deep, or an odd date
        raise ProjectError(f"{path} is no YAML: {_yaml_problem(error)}") from None
    if data is None:
        raise ProjectError(f"{path} doesn't exist; run this in a Pulumi project's folder or name it with -C")
    if not isinstance(raw or {}, dict):
        raise ProjectError(f"{path} must hold keys and values, not a {type(raw).__name__}")
    return cast("dict[str, Value]", raw or {})


@lru_cache(maxsize=4)
def parsed(data: bytes) -> object:
    """Parse a file of a project: each update asks for the same ones. Raises YAMLError, ValueError."""
    return load_yaml(data.decode(), _Loader)


def _yaml_problem(error: Exception) -> str:
    """Return what is wrong and where, without the parser's own name for the text."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(parsing_problem(error).split())


def _section(raw: Mapping[str, Value], key: str, path: Path) -> dict[str, Value]:
    value = raw.get(key)
    if not isinstance(value or {}, dict):
        raise ProjectError(f"{path}: {key} must hold keys and values, not {value!r}")
    section = value if isinstance(value, dict) else {}
    for name in section:
        if not isinstance(name, str):
            raise ProjectError(f"{path}: {key} has the key {name!r}, which is no text; put it in quotes")
    return section


def _text(value: Value) -> str:
    return value if isinstance(value, str) else ""
