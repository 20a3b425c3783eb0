"""Chooses the project of a command, and writes new projects with the sources that their stacks begin with.

A command is about the project around the current directory, or about this user's own where there is none. The user's
own is `$XDG_DATA_HOME/local-lb`, made when it is first needed, with the files that the Pulumi CLI needs as well. Its
programs are written again after another installation wrote them; the files of its stacks are the user's from then on,
and change only where options add sources. Sources are those that options name, and otherwise those found on this host.

Not here: the texts of the files, and the search for a project (`project`).
"""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import yaml

from locallb import safe_files
from locallb.cli.arguments import Arguments
from locallb.cli.confirmation import Cluster, confirm_new, is_of_host
from locallb.cli.console import Out
from locallb.cli.failures import Refused
from locallb.cli.project import (
    MANIFESTS,
    PROGRAM_FILE,
    PROJECT_FILE,
    STACK_SCHEMA,
    Sources,
    fault,
    is_project,
    is_trusted,
    nearest_project,
    program_files,
    project_files,
    require_trusted,
    stack_schema,
    stack_text,
)
from locallb.cli.stack_file import NotEditable
from locallb.cli.stack_sources import merged, sources_of, with_sources
from locallb.config.parsing import parse_settings
from locallb.engine.state.project import check_stack_name
from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName, ContextName
from locallb.safe_files import load_yaml
from locallb.sources.entries import cluster_name
from locallb.storage import files, paths
from locallb.storage.files import scratch
from locallb.storage.paths import shipped

_JOBS = {
    ".github/workflows/load-balancers.yml": "examples/ci/github-actions.yml",
    ".gitlab-ci.yml": "examples/ci/gitlab-ci.yml",
}
_MAY_EXIST = (".", "README", "LICENSE")
"""How names begin that a repository has before anything is in it."""


def begin(directory: Path, sources: Sources) -> None:
    """Write a project around its `sources`. Raises Refused where other files exist.

    The directory is empty, or Git has just made it, or it has only manifests; nothing is ever overwritten.
    """
    try:
        _write(directory, _names_in_use(sources))
    except (FileExistsError, NotADirectoryError) as error:
        raise Refused(
            f"a project in {directory} can't be made: {error.filename} is a file or a link; name another directory"
        ) from None


def _names_in_use(sources: Sources) -> frozenset[str]:
    """Return the first parts of the paths of manifests, by default `manifests`."""
    paths = (Path(str(value)) for source in sources for key, value in source.items() if key == "manifests")
    return frozenset({MANIFESTS, *(path.parts[0] for path in paths if path.parts)})


def _write(directory: Path, manifests: frozenset[str]) -> None:
    if directory.is_dir():
        _require_room(directory, manifests)
    jobs = {path: shipped(name).read_text(encoding="utf-8") for path, name in _JOBS.items()}
    texts = {path: text for path, text in project_files(jobs).items() if not (directory / path).exists()}
    with ExitStack() as undoing:  # a part of a project would be neither one nor room for one
        for path, text in texts.items():
            _make_directory((directory / path).parent, undoing)
            files.create(directory / path, text)
            undoing.callback(files.remove, directory / path)
        undoing.pop_all()


def _make_directory(path: Path, undoing: ExitStack) -> None:
    if not path.is_dir():
        _make_directory(path.parent, undoing)
        path.mkdir(exist_ok=True)
        undoing.callback(_remove_empty, path)


def _remove_empty(directory: Path) -> None:
    with suppress(OSError):  # others have files in it
        directory.rmdir()


def _require_room(directory: Path, manifests: frozenset[str]) -> None:
    names = {path.name for path in directory.iterdir() if not path.name.startswith(_MAY_EXIST)}
    if others := sorted(names - manifests):
        here = str(directory.resolve())
        elsewhere = f"locallb init {shlex.quote(f'{here}-lb')} --manifests {shlex.quote(here)}"
        raise Refused(
            f"{directory} is no project, it has no {PROJECT_FILE}, but {others[0]}: a project begins in an empty"
            f" directory, or around {MANIFESTS}/; `--manifests {directory}` names it in another project, and"
            f" `{elsewhere}` begins one beside it"
        )


_UNCLEAR = """\
found nothing to serve
kind: {docker}
kubeconfig: {kubeconfig}
start a cluster and run again, or name what to serve by `--kind`, `--context NAME` or `--manifests DIR`"""


def named(options: Iterable[tuple[str, object]]) -> Sources:
    """Return the sources that options name, as a stack's configuration has them, wherever that lies."""
    return [_entry(kind, value) for kind, value in options]


def _entry(kind: str, value: object) -> dict[str, object]:
    if kind == "manifests":
        return {kind: str(Path(str(value)).resolve())}
    if kind == "kubernetes" and isinstance(value, dict):
        return _context(str(value["context"]))
    return {kind: value}


def _context(name: str, kubeconfig: str = "") -> dict[str, object]:
    cluster = {"name": cluster_name(name), "context": name}
    return {"kubernetes": {**cluster, "kubeconfig": kubeconfig} if kubeconfig else cluster}


def default_sources() -> Sources:
    """Return every cluster of kind, if there is one, otherwise the current context. Raises Refused without either."""
    docker = _why_no_kind()
    if not docker:
        return [{"kind": "all"}]
    from locallb.kubernetes.api.kubeconfig import meaning, resolve  # noqa: PLC0415 - likewise
    from locallb.kubernetes.api.servers import KubeError  # noqa: PLC0415 - loads what reads YAML

    try:
        access = resolve("", ContextName(""), Path.home())
        meaning("", access.context, Path.home())
    except KubeError as error:
        raise Refused(_UNCLEAR.format(docker=docker, kubeconfig=error)) from None
    return [_context(access.context, access.kubeconfig)]


def clusters_of(sources: Sources) -> list[Cluster]:
    """Return the clusters that sources reach by a kubeconfig."""
    values = [value for source in sources for value in source.values() if isinstance(value, dict)]
    texts = ({key: str(value.get(key, "")) for key in ("name", "kubeconfig", "context")} for value in values)
    return [Cluster(ClusterName(each["name"]), each["kubeconfig"], ContextName(each["context"])) for each in texts]


def require_existing(sources: Sources, root: Path) -> None:
    """Refuse manifests and contexts that aren't there, by Refused or KubeError; clusters of kind may come later."""
    for kind, value in (entry for source in sources for entry in source.items()):
        if kind == "manifests" and not Path(str(value)).exists():
            raise Refused(f"there are no manifests in {value}, it doesn't exist; name another directory or a file")
        if kind == "kubernetes" and isinstance(value, dict):
            _require_context(str(value.get("kubeconfig", "")), ContextName(str(value["context"])), root)


def _require_context(kubeconfig: str, context: ContextName, root: Path) -> None:
    from locallb.kubernetes.api.kubeconfig import resolve  # noqa: PLC0415 - likewise
    from locallb.kubernetes.api.servers import KubeconfigError  # noqa: PLC0415 - loads what reads YAML

    try:
        resolve(kubeconfig, context, root)
    except KubeconfigError as error:
        raise Refused(f"{error}; repair that file, or set KUBECONFIG to the one that is meant") from None


def _why_no_kind() -> str:
    """Return why no cluster of kind is found; empty if there is one."""
    from locallb.sources.kind import names_of_clusters  # noqa: PLC0415 - loads a client of Docker

    try:
        return "" if names_of_clusters() else "this host's Docker has no cluster of it"
    except ClientError as error:
        return str(error)


def described(sources: Sources) -> str:
    return ", ".join(_described(kind, value) for source in sources for kind, value in source.items())


def _described(kind: str, value: object) -> str:
    if kind == "kind":
        return f"{_clusters(value)} of kind on this host's Docker"
    if isinstance(value, dict):
        return f"the cluster of the context {value.get('context', 'that is current')}"
    return f"the manifests in {value}"


def _clusters(value: object) -> str:
    if value == "all":
        return "every cluster"
    names = value if isinstance(value, list) else [value]
    return f"the {'cluster' if len(names) == 1 else 'clusters'} {', '.join(map(str, names))}"


PREVIEW = "preview"
RUNTIME_VARIABLE = "LOCALLB_RUNTIME"
"""Variable with the runtime of new stacks: `docker` inside a container, which ends its processes with itself."""


def require_own(*, by_sudo: bool) -> Path:
    """Return the existing project; with `by_sudo` also that of the user who called sudo. Raises Refused."""
    root = paths.data_home()
    if by_sudo and not (root / PROJECT_FILE).exists():
        root = next((theirs for theirs in _callers_projects() if (theirs / PROJECT_FILE).exists()), root)
    if not (root / PROJECT_FILE).exists():
        raise Refused(
            f"there is no project here and none in {root}: `locallb watch` or `locallb up` makes that one; or change to"
            " the directory of a project, or name it with -C"
        )
    _require_ours(root)
    return root


def _callers_projects() -> Iterator[Path]:
    """Return the default location of the project of the user who called `sudo`; nothing without `sudo`."""
    caller = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isdecimal():
        with suppress(KeyError):
            yield Path(pwd.getpwuid(int(caller)).pw_dir) / paths.DATA / paths.PROJECT


def _require_ours(root: Path) -> None:
    if found := fault(root):
        raise Refused(f"{found}: {found.remedy or 'remove it'}, or set XDG_DATA_HOME to a directory of your own")


def prepare(args: Arguments, out: Out, lent: ExitStack) -> Path:
    """Return the project with a configuration of the stack; print in five lines what is created.

    A preview of a cluster that isn't of this host gets a project that is removed with `lent`: a stack that names such a
    cluster is the user's consent to write there.

    Raises:
        Refused: if what to serve isn't clear.
        PlaceError: if it can't be made.

    """
    check_stack_name(args.stack)
    root = paths.data_home()
    is_new = not (root / PROJECT_FILE).exists()
    if root.exists():
        _require_ours(root)
    stack = root / "stacks" / f"Pulumi.{args.stack}.yaml"
    former = files.read(stack)
    sources, text = _wanted(former, named(args.sources), stack, args.command)
    elsewhere = [entry for entry in clusters_of(sources) if not is_of_host(entry, root)]
    if args.command == PREVIEW and args.sources and elsewhere:
        root = lent.enter_context(scratch("the project of a preview"))
        stack = root / "stacks" / stack.name
        out.warning(f"{described(sources)}, not of this host: nothing of this preview is kept")
    elif not (args.sources and args.yes):
        for entry in elsewhere:
            confirm_new(entry, root, args.command, out, requires=not args.json)
    for directory in (root, root / "stacks", root / ".state", root / "provider"):
        paths.private_directory(directory)
    environment = sys.prefix if sys.prefix != sys.base_prefix else ""
    _write_own_project(root, program_files(environment, environment))
    if sources:
        _write_own_project(stack.parent, {stack.name: text, STACK_SCHEMA: stack_schema()})
    if is_new and root == paths.data_home() and not args.json:
        for line in _explanation(root, stack, sources):
            out.line(line)
    elif former is not None and sources and not args.json:
        out.line(f"Added to what stack {args.stack} serves: {described(sources)}; all of it is in {_near(stack)}.")
    return root


def _wanted(former: str | None, given: Sources, stack: Path, command: str) -> tuple[Sources, str]:
    """Return the sources that a stack begins with, or that its file gets, and the file's text. Raises Refused."""
    if former is not None:
        lacking = [source for source in given if merged(sources_of(former), [source])]
        return lacking, _extended(former, lacking, stack, command)
    runtime = os.environ.get(RUNTIME_VARIABLE, "")
    wanted = given or default_sources()
    parse_settings(
        {"sources": wanted, **({"runtime": runtime} if runtime else {})}
    )  # a mistake is reported before anything is written
    require_existing(wanted, paths.data_home())
    return wanted, stack_text(wanted, runtime, localhost=not runtime)


def _extended(text: str, added: Sources, stack: Path, command: str) -> str:
    """Return a stack's file with more sources, else as it is. Raises Refused where a preview or its form forbids it."""
    if not added:
        return text
    try:
        changed = with_sources(text, added)
    except (NotEditable, yaml.YAMLError, ValueError):
        changed = ""
    if command == PREVIEW or not changed:
        adding = "; `locallb up` with these options adds them, or" if changed else ";"
        raise Refused(
            f"{stack} names other sources: {described(sources_of(text))}{adding} write there what to serve, or name"
            " another stack with --stack"
        )
    parse_settings({"sources": sources_of(changed)})  # a mistake is reported before anything is written
    require_existing(added, paths.data_home())
    return changed


def _write_own_project(root: Path, texts: Mapping[str, str]) -> None:
    """Write the files with changed text. Raises FilesError."""
    for name, text in texts.items():
        if files.read(root / name) != text:
            files.write(root / name, text)


def _explanation(root: Path, stack: Path, sources: Sources) -> Iterator[str]:
    yield f"No project here: creating your personal one in {_near(root)}."
    yield f"  serves  {described(sources)}, as {stack.relative_to(root)} there says"
    yield "  gives   each Service of type LoadBalancer an address of this host, by an Envoy of its own"
    claims = _near(paths.ledger_directory())
    yield f"  keeps   proxies in {_near(paths.proxies_root())}, claims of addresses in {claims}"
    authority = f"{_near(root / 'ca')}, the authority of other projects and browsers"
    yield f"  undo    `locallb destroy`, then remove {_near(root)}, but keep {authority}"


def _near(path: Path) -> str:
    """Write a path as a shell has it: shorter below this user's home, where that can be pasted."""
    try:
        below = str(path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)
    return f"~/{below}" if shlex.quote(below) == below else str(path)


MAKING = frozenset({"up", "preview", "watch"})
"""Commands that begin this user's own project."""
SEARCHING = "doctor"
"""The command that looks at what isn't there yet, too; every other one needs a project."""
BY_SUDO = "host"
"""Command about this host: root runs it on behalf of the user that called `sudo`."""
_OF_OURS = ("local-lb", "locallb")
_LARGEST = 1 << 20
"""Bytes of a project's file or program."""


def chosen(args: Arguments, out: Out, lent: ExitStack) -> Path:
    """Return the project's directory; what is only for this run is removed with `lent`.

    Raises Refused where it is another Pulumi project, or there is none to use.
    """
    directory = nearest_project(args.directory)
    if is_project(directory):
        if not args.offline:  # previews of two sides read data, and run nothing
            require_trusted(directory, args)
        require_ours(directory)
        if args.sources and args.command in MAKING:
            raise Refused(
                f"{directory} is a project, whose stacks name their sources: edit those of stack {args.stack}, or run"
                " this elsewhere"
            )
        return directory
    if args.offline or args.directory != Path():
        return directory

    if args.command in MAKING:
        own = prepare(args, out, lent)
    elif args.command != SEARCHING:
        own = require_own(by_sudo=args.command == BY_SUDO)
    else:
        own = paths.data_home()
        return own if is_trusted(own) or not own.exists() else directory
    require_trusted(own, args)
    return own


def require_ours(directory: Path) -> None:
    """Raise Refused for another Pulumi project: ours names local-lb, in the project's file or in the program."""
    path = directory / PROJECT_FILE
    texts = [_text(path), _text(directory / PROGRAM_FILE)]
    if not any(word in text for text in texts for word in _OF_OURS) and _is_project(texts[0]):
        raise Refused(
            f"{path} is another Pulumi project's, and stays as it is; change to another directory, or name a project of"
            " local-lb with -C"
        )


def _is_project(text: str) -> bool:
    """Return whether it is a project's file; a broken one is reported by the command that needs it."""
    try:
        document = load_yaml(text, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and {"name", "runtime"} <= document.keys()


def _text(path: Path) -> str:
    try:
        return safe_files.read(path, _LARGEST).decode(errors="replace")
    except OSError:
        return ""
