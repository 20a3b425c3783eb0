"""Kubeconfigs: which context of which file is meant, and how its cluster is reached.

What the client underneath would pass over in silence or can't do (exec plugins of version v1, `tls-server-name`,
impersonation) is refused in a sentence. Credentials stay where the file says. Not here: requests (`kube`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import yaml
from lightkube import KubeConfig
from lightkube.config.kubeconfig import SingleConfig

from locallb.clients.kube_errors import Fault, KubeError
from locallb.planning.snapshot import Access

Section: TypeAlias = Mapping[str, Any]
EXEC_VERSIONS = ("client.authentication.k8s.io/v1beta1", "client.authentication.k8s.io/v1alpha1")
"""Versions of exec credentials that the client speaks."""
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
Stamp: TypeAlias = tuple[tuple[int, int], ...]
_PROXIES = ("http", "https", "socks5", "socks5h")


@dataclass(frozen=True, slots=True)
class Connection:
    """How a cluster is reached."""

    config: SingleConfig
    server: str
    """The API's URL."""
    trust_env: bool
    """Ask the proxy that the environment names, if any."""
    proxy: str | None = None
    """The proxy that the kubeconfig names."""
    files: tuple[str, ...] = ()
    """Files that it names: certificates, keys, tokens."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a kubeconfig says of one cluster, to be compared with what it says later."""

    access: Access
    digest: str
    """Of the cluster's and the user's section, so that whatever else is rewritten in the file makes no difference."""


def resolve(kubeconfig: str, context: str, root: Path) -> Access:
    """Tell which context of which file is meant; empty words stand for kubectl's defaults.

    Raises KubeError (KUBECONFIG, NO_CONTEXT).
    """
    path = kubeconfig_path(kubeconfig, root)
    return _chosen(path, _content(path), context)


def meaning(kubeconfig: str, context: str, root: Path) -> Meaning:
    """Tell the same, and what the file says of that context. Raises KubeError (KUBECONFIG, NO_CONTEXT)."""
    path = kubeconfig_path(kubeconfig, root)
    content = _content(path)
    access = _chosen(path, content, context)
    chosen = _named(content, "contexts")[access.context]
    sections = [dict(_part(content, kind, chosen, access)) for kind in ("cluster", "user")]
    text = json.dumps(sections, sort_keys=True, default=str)
    return Meaning(access, hashlib.sha256(text.encode()).hexdigest())


def _chosen(path: Path, content: Section, context: str) -> Access:
    name = context or str(content.get("current-context") or "")
    if not name:
        raise KubeError(Fault.NO_CONTEXT, f"{path} has no current context; name one in `context`")
    if name not in _named(content, "contexts"):
        raise KubeError(Fault.NO_CONTEXT, f"{path} has no context {name}")
    return Access(str(path), name)


def kubeconfig_path(kubeconfig: str, root: Path) -> Path:
    """Find the file; the first of `$KUBECONFIG` where none is named. Raises KubeError where `~` means nothing."""
    given = kubeconfig or os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0] or "~/.kube/config"
    try:
        return Path(os.path.normpath(root / Path(given).expanduser()))
    except RuntimeError:
        problem = f"{given} can't be found: there is no such home directory; name the file by an absolute path"
        raise KubeError(Fault.KUBECONFIG, problem) from None


def stamp(access: Access, files: Iterable[str] = ()) -> Stamp:
    """Tell which version of the kubeconfig this is, and of `files` that it names. Raises KubeError (KUBECONFIG)."""
    try:
        seen = [Path(path).stat() for path in (access.kubeconfig, *files)]
    except OSError as error:
        raise _unreadable(str(error.filename), error, access.kubeconfig) from None
    return tuple((one.st_mtime_ns, one.st_ino) for one in seen)


def connection(access: Access) -> Connection:
    """Read how the cluster of a context is reached. Raises KubeError (KUBECONFIG, NO_CONTEXT)."""
    path = Path(access.kubeconfig)
    content = _content(path)
    where = f"{path} has"
    context = _named(content, "contexts").get(access.context)
    if context is None:
        raise KubeError(Fault.NO_CONTEXT, f"{where} no context {access.context}")
    cluster, user = (_part(content, kind, context, access) for kind in ("cluster", "user"))
    told = next(_unusable(cluster, user), None)
    if told:
        raise KubeError(Fault.KUBECONFIG, f"the context {access.context} of {path} can't be used: {told}")
    server = str(cluster.get("server") or "")
    proxy = cluster.get("proxy-url") or None
    files = tuple(str(path.parent / str(part[key])) for part in (cluster, user) for key in _FILES if part.get(key))
    return Connection(_single(content, access, path), server, not proxy and not is_local(server), proxy, files)


def is_local(server: str) -> bool:
    """Tell whether the API is on this host: then no proxy of the environment is asked, as kubectl does it."""
    host = urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _unusable(cluster: Section, user: Section) -> Iterator[str]:
    """Say what of a context can't be had, and what helps."""
    server = str(cluster.get("server") or "")
    if urlsplit(server).scheme not in {"http", "https"}:
        yield f"its server is {server or 'missing'}; write a URL such as https://127.0.0.1:6443"
    if cluster.get("tls-server-name"):
        yield "it has `tls-server-name`; give a server by a name that its certificate has"
    if (proxy := cluster.get("proxy-url")) and urlsplit(str(proxy)).scheme not in _PROXIES:
        yield f"its proxy-url is {proxy}; write a URL such as http://127.0.0.1:3128"
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


def _part(content: Section, kind: str, context: Section, access: Access) -> Section:
    name, known = str(context.get(kind)), _named(content, f"{kind}s")
    if name not in known:
        told = f"{access.kubeconfig} has no {kind} {name}, which its context {access.context} names"
        raise KubeError(Fault.KUBECONFIG, told)
    return known[name]


def _single(content: Section, access: Access, path: Path) -> SingleConfig:
    given = {"clusters": [], "contexts": [], "users": [], **content}
    try:
        single: SingleConfig | None = KubeConfig.from_dict(given, path).get(access.context)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KubeError(Fault.KUBECONFIG, f"{path} isn't a kubeconfig: {error}") from None
    if single is None:
        raise AssertionError(access)
    return single


def _named(content: Section, kind: str) -> Mapping[str, Section]:
    """Give the entries of a list by name."""
    return {entry["name"]: entry.get(kind.removesuffix("s")) or {} for entry in content.get(kind) or ()}


def _content(path: Path) -> Section:
    """Read the file, without lists that are null, as `kind delete cluster` leaves them."""
    try:
        content = yaml.safe_load(path.read_bytes()) or {}
        found = {key: value for key, value in content.items() if value is not None}
        for kind in ("clusters", "contexts", "users"):
            for section in _named(found, kind).values():
                section.get("name")
    except OSError as error:
        raise _unreadable(str(path), error) from None
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError):
        raise KubeError(Fault.KUBECONFIG, f"{path} isn't a kubeconfig") from None
    return found


def _unreadable(path: str, error: OSError, kubeconfig: str = "") -> KubeError:
    what = (
        f"{path}, which the kubeconfig {kubeconfig} names,"
        if kubeconfig not in {"", path}
        else f"the kubeconfig {path}"
    )
    return KubeError(Fault.KUBECONFIG, f"{what} can't be read: {error.strerror}")
