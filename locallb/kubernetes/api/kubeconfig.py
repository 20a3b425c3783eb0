"""Kubeconfig files: the way to an API that a context names, and what a file proves of it: present, removed, or neither.

Other programs rewrite these files in place, so any beginning of one may be read. A file that can't be parsed, is empty
or may be half-written proves nothing, and nothing is given up for it.

Not here: tokens of plugins (`exec_plugin`), the pod's own access (`in_cluster`), and requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, convert, field
from msgspec.structs import replace

from locallb import safe_files
from locallb.kubernetes.api import in_cluster
from locallb.kubernetes.api.exec_plugin import Plugin, token
from locallb.kubernetes.api.servers import (
    KubeconfigError,
    KubeError,
    NoContextError,
    Server,
    host_of,
    is_exempt,
    is_local,
    is_url,
    redacted,
    uses_proxy,
)
from locallb.kubernetes.documents import DocumentError, ReadDocument, read_documents
from locallb.model import http_checks
from locallb.model.errors import refusal
from locallb.model.fields import JsonObject, objects_of
from locallb.model.identities import ContextName, Digest
from locallb.model.snapshot import Access
from locallb.model.texts import clipped, few
from locallb.patterns import pattern

if TYPE_CHECKING:
    import httpx2

Section: TypeAlias = JsonObject
LARGEST = 4 * 2**20
"""Bytes of a kubeconfig, and of each file that it names."""
EMPTIED = 10.0
"""Seconds after which a file without any list counts as emptied, not as one that is being written."""
UNWRITTEN: dict[str, bytes] = {}
"""Contents, by path, of files that a preview may not write; reads of such a path return these."""


class Content(Struct, frozen=True, dict=True):
    """Contents of a kubeconfig."""

    path: Path
    document: ReadDocument
    data: bytes
    changed: float
    """When it was written to last (Unix)."""
    lists: Mapping[str, Mapping[str, Section]] = field(default_factory=dict)
    """The sections of each list, by name."""

    @property
    def values(self) -> Section:
        return self.document.value if isinstance(self.document.value, dict) else {}

    @cached_property
    def proves_absence(self) -> bool:
        """Return whether a context that isn't in it is gone: no beginning of a longer file looks like this.

        Either its list of contexts is whole, because a field follows it or everything stands in braces, or it has none
        of the lists any more, as after `kind delete cluster`, and wasn't written to for `EMPTIED` seconds.
        """
        keys = list(self.values)
        if any(repeated.key == "contexts" for repeated in self.document.repeated) or b"<<" in self.data:
            return False
        if "contexts" in keys:
            return keys[-1] != "contexts" or self.data.lstrip().startswith(b"{")
        bare = set(keys) <= {"apiVersion", "kind", "preferences"} and self.values.get("kind") == "Config"
        return bare and time.time() - self.changed > EMPTIED

    def absent(self, context: ContextName) -> KubeError:
        """Explain that a kubeconfig has no such context."""
        names = few([clipped(str(name)) for name in self.lists["contexts"]])
        contents = f"it has {names}" if names else "it has none"
        if self.proves_absence:
            return NoContextError(f"{self.path} has no context {clipped(context)}; {contents}")
        return KubeconfigError(
            f"{self.path} has no context {clipped(context)} now, but it may be half-written, because nothing follows"
            f" its list of contexts; {contents}",
        )


def unwritten(path: str) -> bytes | None:
    """Return the contents of a kubeconfig that isn't written; None if the file itself counts."""
    return UNWRITTEN.get(path) or in_cluster.unwritten(path)


def read_content(path: Path) -> Content:
    """Read the file. An empty or unparsable one has no contents. Raises KubeconfigError."""
    try:
        given = unwritten(str(path))
        data = given or safe_files.read(path, LARGEST)
        changed = time.time() if given is not None else path.stat().st_ctime
        documents = read_documents(data, is_json=False)
    except OSError as error:
        raise unreadable(str(path), error) from None
    except DocumentError as error:
        sentence = f"{path} isn't a kubeconfig" + (f": line {error.line}: {error.what}" if error.line else "")
        raise KubeconfigError(sentence) from None
    if not any(document.value for document in documents):
        raise KubeconfigError(f"{path} is empty; it may be half-written")
    try:
        (document,) = documents
        return Content(path, document, data, changed, _lists(document.value))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KubeconfigError(f"{path} isn't a kubeconfig") from None


def _lists(values: Any) -> Mapping[str, Mapping[str, Section]]:  # noqa: ANN401 - of somebody else
    """Return the sections of each list by name; a list that is null, as `kubectl` leaves it, is empty."""
    lists = {kind: _named(values.get(kind) or (), kind.removesuffix("s")) for kind in _LISTS}
    for sections in lists.values():
        for section in sections.values():
            section.get("name")
    return lists


_LISTS = ("clusters", "contexts", "users")


def _named(entries: Iterable[Any], kind: str) -> Mapping[str, Section]:
    return {entry["name"]: entry.get(kind) or {} for entry in entries}


def unreadable(path: str, error: OSError, kubeconfig: str = "") -> KubeError:
    """Return why the kubeconfig, or a file that it names, can't be read."""
    what = (
        f"{path}, which the kubeconfig {kubeconfig} names,"
        if kubeconfig not in {"", path}
        else f"the kubeconfig {path}"
    )
    return KubeconfigError(f"{what} can't be read: {refusal(error)}")


_TOKEN = pattern(rb"[ -~]+")


def require_token(user: Section, access: Access) -> None:
    """Refuse a user's token that can't be sent, without printing it. Raises KubeError.

    The bearer token is inline or in a file that may be replaced. An HTTP client would print a token that it can't send,
    or half of it.
    """
    if user.get("tokenFile"):
        read_token(Path(access.kubeconfig).parent / str(user["tokenFile"]), access)
    elif user.get("token") and not _TOKEN.fullmatch(str(user["token"]).encode("utf-8", "replace")):
        raise _without_token("its user's token isn't one line of plain characters; copy it again", access)


def read_token(path: Path, access: Access) -> str:
    """Read the token in a file. Raises KubeError."""
    try:
        token = safe_files.read(path, LARGEST).strip()
    except OSError as error:
        raise unreadable(str(path), error, access.kubeconfig) from None
    if not _TOKEN.fullmatch(token):
        raise _without_token(f"{path} has no token in one line; write one there", access)
    return token.decode("ascii")


def _without_token(why: str, access: Access) -> KubeError:
    return KubeconfigError(f"the context {access.context} of {access.kubeconfig} can't be used: {why}")


EXEC_VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
"""Versions of exec credentials that are understood."""
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_BEFORE_EXEC = ("token", "tokenFile", "username")
"""Credentials of a user that count in the place of its plugin, as for kubectl."""
_OF_PLUGINS = "client.authentication.k8s.io/exec"
"""The extension of a cluster with what it says to plugins."""
_WAY = (
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "proxy-url",
    "tls-server-name",
)
"""Fields of a cluster's section that decide which API server answers."""
_USUAL = "~/.kube/config"
Stamp: TypeAlias = tuple[tuple[int, int], ...]
_PROXIES = ("http", "https", "socks5", "socks5h")


class Trust(Struct, frozen=True, rename="kebab"):
    """Fields of a kubeconfig's cluster that decide which servers are believed."""

    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None


class Credentials(Struct, frozen=True, rename="kebab"):
    """Fields of a kubeconfig's user that are shown to the server."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None


for _struct in (Trust, Credentials):
    convert({}, _struct)  # msgspec looks at a struct when it is used first: in two threads at once, that can crash


class Connection(Struct, frozen=True):
    """Access to a cluster."""

    access: Access
    url: str
    server: str
    """The API's URL, as it may be shown."""
    trust: Trust
    user: Credentials
    trust_env: bool
    """Ask the proxy that the environment names, if any."""
    proxy: str | None = None
    """The proxy that the kubeconfig names."""
    files: tuple[str, ...] = ()
    """Files that it names: certificates, keys, tokens."""
    plugin: Plugin | None = None
    """The command that prints the token, if any."""
    server_name: str = ""
    """The name that its certificate has (`tls-server-name`); empty for that in the URL."""

    @property
    def beyond(self) -> tuple[str, ...]:
        """Return the fields that refer to files, a command or a proxy, beyond the kubeconfig and its server."""
        plugin, proxy = ("exec",) if self.plugin else (), ("proxy-url",) if self.proxy else ()
        return *plugin, *proxy, *self.files

    def name_server(self, request: httpx2.Request) -> None:
        """Set the name by which a request's connection asks for the server (SNI) and checks its certificate."""
        if self.server_name:
            request.extensions["sni_hostname"] = self.server_name


class Meaning(Struct, frozen=True):
    """Meaning of a kubeconfig for one cluster, to compare with a later one."""

    access: Access
    digest: Digest
    """Of the cluster's and the user's section, so that whatever else is rewritten in the file makes no difference."""
    server: Server
    cluster: Digest
    """Digest of the fields that lead to the cluster and prove its identity."""


def resolve(kubeconfig: str, context: ContextName, root: Path) -> Access:
    """Return the selected context and file; empty arguments mean kubectl's defaults.

    Raises KubeconfigError or NoContextError.
    """
    return _chosen(read_content(kubeconfig_path(kubeconfig, root)), context)


def meaning(kubeconfig: str, context: ContextName, root: Path) -> Meaning:
    """Return the selected context with its meaning. Raises KubeconfigError or NoContextError."""
    content = read_content(kubeconfig_path(kubeconfig, root))
    access = _chosen(content, context)
    sections = [dict(_part(content, kind, access)) for kind in ("cluster", "user")]
    way = {key: sections[0][key] for key in _WAY if sections[0].get(key)}
    return Meaning(access, _digest(sections), _server(sections[0]), _digest(way))


def _digest(content: object) -> Digest:
    text = json.dumps(content, sort_keys=True, default=str)
    return Digest(hashlib.sha256(text.encode()).hexdigest())


def _server(cluster: Section) -> Server:
    url = str(cluster.get("server") or "")
    usable = is_url(url, ("http", "https"))
    verified = url.startswith("https:") and not cluster.get("insecure-skip-tls-verify")
    named = str(cluster.get("tls-server-name") or "")
    by_proxy = bool(cluster.get("proxy-url")) or (usable and uses_proxy(named, url))
    return Server(redacted(url), host_of(url) if usable else "", verified=verified, by_proxy=by_proxy)


def _chosen(content: Content, context: ContextName) -> Access:
    name = context or ContextName(str(content.values.get("current-context") or ""))
    if not name:
        names = few([clipped(str(context)) for context in content.lists["contexts"]]) or "none"
        sentence = f"{content.path} has no current context; name one in `context`: it has {names}"
        raise KubeconfigError(sentence)
    if name not in content.lists["contexts"]:
        raise content.absent(name)
    return Access(str(content.path), name)


def kubeconfig_path(kubeconfig: str, root: Path) -> Path:
    """Find the file; where none is named, the first of `$KUBECONFIG` that is there.

    As kubectl has it, missing ones are passed over, and a pod that has none is meant to ask its own cluster. Raises
    KubeError where `~` means nothing.
    """
    named = [kubeconfig] if kubeconfig else _of_environment()
    if not named and in_cluster.is_pod() and not safe_files.expanded(_USUAL).exists():
        return in_cluster.kubeconfig()
    files = [_whole_path(given, root) for given in named or [_USUAL]]
    return next((file for file in files if not _is_missing(file)), files[0])


def _of_environment() -> list[str]:
    """Return the files that `$KUBECONFIG` names."""
    return [entry for entry in os.environ.get("KUBECONFIG", "").split(os.pathsep) if entry]


def _is_missing(file: Path) -> bool:
    """Return whether a file isn't there; one of which that can't be told is used, and using it tells why it fails."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def _whole_path(given: str, root: Path) -> Path:
    try:
        return Path(os.path.normpath(root / Path(given).expanduser()))
    except RuntimeError:
        problem = f"{given} can't be found: there is no such home directory; name the file by an absolute path"
        raise KubeconfigError(problem) from None


def is_for_one_cluster(kubeconfig: str, root: Path) -> bool:
    """Return whether a file has one context, and isn't a default file of kubectl. Raises KubeconfigError.

    Programs such as `kind` and `kubectl config` write to default files.
    """
    named = kubeconfig_path(kubeconfig, root)
    usual = [*_of_environment(), str(safe_files.expanded(_USUAL))]
    is_usual = any(_same_file(named, Path(path)) for path in usual)
    return not is_usual and len(read_content(named).lists["contexts"]) == 1


def _same_file(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False


def stamp(access: Access, files: Iterable[str] = ()) -> Stamp:
    """Return which version of the kubeconfig this is, and of `files` that it names. Raises KubeconfigError."""
    try:
        return tuple(_version(path) for path in (access.kubeconfig, *files))
    except OSError as error:
        raise unreadable(str(error.filename), error, access.kubeconfig) from None


def _version(path: str) -> tuple[int, int]:
    if (given := unwritten(path)) is not None:
        return hash(given), len(given)
    observed = Path(path).stat()
    return observed.st_mtime_ns, observed.st_ino


def connection(access: Access) -> Connection:
    """Read how the cluster of a context is reached. Raises KubeconfigError or NoContextError."""
    path = Path(access.kubeconfig)
    content = read_content(path)
    if access.context not in content.lists["contexts"]:
        raise content.absent(access.context)
    cluster, user = (_part(content, kind, access) for kind in ("cluster", "user"))
    why = next(_unusable(cluster, user), None)
    if why:
        raise KubeconfigError(f"the context {access.context} of {path} can't be used: {why}")
    server = str(cluster.get("server") or "")
    proxy = cluster.get("proxy-url") or None
    cluster, user = (_with_whole_paths(part, path.parent) for part in (cluster, user))
    files = tuple(str(part[key]) for part in (cluster, user) for key in _FILES if part.get(key))
    plugin = Plugin.of(user["exec"], access) if user.get("exec") and not any(map(user.get, _BEFORE_EXEC)) else None
    if plugin or files or proxy:
        _require_trusted(path, plugin, [key for key in (*_FILES, "proxy-url") if cluster.get(key) or user.get(key)])
    _require_regular(files, access)
    if plugin and user["exec"].get("provideClusterInfo"):
        plugin = replace(plugin, cluster=_cluster_for_plugin(cluster, access))
    require_token(user, access)
    try:
        trust, credentials = convert(cluster, Trust), convert(user, Credentials)
    except ValueError as error:
        raise KubeconfigError(f"{path} isn't a kubeconfig: {error}") from None
    server_name = _server_name(cluster)
    direct = proxy or is_local(server) or is_exempt(server_name, server)
    return Connection(
        access, server, redacted(server), trust, credentials, not direct, proxy, files, plugin, server_name
    )


def _cluster_for_plugin(cluster: Section, access: Access) -> str:
    """Return what a plugin gets to know of its cluster if its section asks for it, as JSON. Raises KubeconfigError."""
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    info = {name: cluster[name] for name in names if cluster.get(name)}
    if (path := cluster.get("certificate-authority")) and "certificate-authority-data" not in info:
        try:
            authority = safe_files.read(Path(str(path)), LARGEST)
        except OSError as error:
            raise unreadable(str(path), error, access.kubeconfig) from None
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    extensions = objects_of(cluster.get("extensions"))
    config = next((each.get("extension") for each in extensions if each.get("name") == _OF_PLUGINS), None)
    return json.dumps({**info, "config": config} if config is not None else info)


def _with_whole_paths(part: Section, directory: Path) -> Section:
    """Return a section with its files as they are found from anywhere."""
    return {**part, **{key: str(directory / str(part[key])) for key in _FILES if part.get(key)}}


def sign_in(accesses: Iterable[Access]) -> None:
    """Run the exec plugins of these contexts, if any, for their tokens; later uses of a token report a failure."""
    for access in accesses:
        with suppress(KubeError):
            if plugin := connection(access).plugin:
                token(plugin)


def _require_trusted(path: Path, plugin: Plugin | None, fields: Collection[str]) -> None:
    """Refuse a file that another user may change and that has a command, or these fields, for this user's files.

    Its author would choose what this user runs, or which of this user's files are sent to which server. Other files of
    the directory count too: one may be a link by the time it is read. The file that the environment names is exempt.

    Raises KubeError.
    """
    if unwritten(str(path)) is not None or path == kubeconfig_path("", Path("/")):
        return
    try:
        fault = safe_files.distrust(path, path)
    except OSError as error:
        raise unreadable(str(path), error) from None
    if fault:
        refused = f"{plugin} isn't run" if plugin else f"{path} isn't used, because it has {few(list(fields))}"
        remedy = fault.remedy or "use a copy of your own"
        raise KubeconfigError(f"{refused}, as {fault}: {remedy}, or name the file by $KUBECONFIG")


def _require_regular(files: Collection[str], access: Access) -> None:
    """Refuse files that would keep the client waiting, or never end. Raises KubeError."""
    for file in files:
        try:
            safe_files.require_regular(Path(file), Path(file).stat(), LARGEST)
        except OSError as error:
            sentence = f"the context {access.context} of {access.kubeconfig} can't be used: {file}: {refusal(error)}"
            raise KubeconfigError(sentence) from None


def _unusable(cluster: Section, user: Section) -> Iterator[str]:
    """Return what of a context can't be had, and what helps."""
    server = str(cluster.get("server") or "")
    if not is_url(server, ("http", "https")):
        yield f"its server is {clipped(redacted(server)) or 'missing'}; write a URL such as https://127.0.0.1:6443"
    try:
        _server_name(cluster)
    except ValueError as error:
        yield f"its tls-server-name {error}; write the name that the server's certificate has"
    if (proxy := cluster.get("proxy-url")) and not is_url(str(proxy), _PROXIES):
        yield f"its proxy-url is {clipped(redacted(str(proxy)))}; write a URL such as http://127.0.0.1:3128"
    plugin = user.get("exec")
    if isinstance(plugin, Mapping) and plugin.get("apiVersion") not in EXEC_VERSIONS:
        yield (
            f"its user comes from {plugin.get('command')} with {plugin.get('apiVersion')};"
            f" let it give {EXEC_VERSIONS[0]}, or use a client certificate or a token"
        )
    if user.get("auth-provider"):
        yield "its user has an auth-provider, which Kubernetes no longer has; use a client certificate or a token"
    if any(str(key) == "as" or str(key).startswith("as-") for key in user):
        yield "its user impersonates another one (`as`); use that one's own credentials"


def _server_name(cluster: Section) -> str:
    """Return the name in the server's certificate, if it differs from the URL. Raises ValueError."""
    name = cluster.get("tls-server-name")
    return http_checks.hostname(str(name).lower(), wildcard=False) if name else ""


def _part(content: Content, kind: str, access: Access) -> Section:
    """Return the cluster or the user of a context; one without a user, as of `kubectl proxy`, shows no credentials."""
    given, existing = content.lists["contexts"][access.context].get(kind), content.lists[f"{kind}s"]
    if kind == "user" and not given:
        return {}
    name = str(given)
    if name not in existing:
        sentence = f"{access.kubeconfig} has no {kind} {name}, which its context {access.context} names"
        raise KubeconfigError(sentence)
    return existing[name]
