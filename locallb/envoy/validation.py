"""Envoy's own verdict on the files of a proxy: all of them as one static configuration, which is read and never run.

It finds what Envoy refuses for whatever reason, and says why. Not here: which object is to blame.
"""

from __future__ import annotations

import hashlib
import re
import signal
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from locallb.envoy import rollout
from locallb.envoy.binary import installed
from locallb.envoy.bootstrap import ALONE
from locallb.envoy.document import reading_time, text
from locallb.model.errors import ClientError
from locallb.model.fields import JsonObject
from locallb.model.identities import Digest
from locallb.model.texts import printable
from locallb.patterns import pattern
from locallb.programs import EndedProgram, Program
from locallb.storage import files
from locallb.storage.files import scratch

TIMEOUT = 10.0
"""Seconds; 0.1 are usual."""
_ARGUMENTS = ("--mode", "validate", ALONE, "--concurrency", "1", "--log-level", "critical")
_COMPLAINT = pattern(r"error initializing configuration '[^']*': (.*)", re.DOTALL)
_FILE = pattern(r'"filename":"\./([^"/]+)"')
_CAUSED_BY = "| caused by "
_MAX_CAUSE = 200
"""Characters of a cause."""
_ENDED_BY_OTHERS = frozenset({-signal.SIGKILL, -signal.SIGTERM})
"""Exit codes of an Envoy that another process ended, most often the kernel for want of memory."""


_MAX = 256
"""Verdicts that are remembered: of the same files they are the same, and several want to know them in one update."""
LATELY = 5.0
"""Seconds after a refusal in which another process may repeat the same validation."""


class NoVerdictError(ClientError):
    """Envoy can't be asked, or didn't answer in time: nothing is known of its files."""


_VERDICTS: OrderedDict[Digest, str] = OrderedDict()
"""Why it refuses what was asked last."""
_REFUSED_AT: dict[Path, float] = {}
"""When files of a directory were refused."""


def why_refused(texts: Mapping[str, str], directory: Path, timeout: float | None = None) -> str:
    """Return why Envoy refuses these files in `directory`, which has their certificates; empty if it accepts them.

    Raises NoVerdictError, also where it has no answer within so many seconds, or within the usual time.
    """
    configuration = static(texts)
    what = _digest(configuration, directory)
    if (existing := _VERDICTS.get(what)) is not None:
        return existing
    timeout = TIMEOUT + reading_time(len(configuration)) if timeout is None else timeout
    ended = _ended(configuration, directory, timeout)
    found = _COMPLAINT.search(ended.complaints.decode(errors="replace"))
    if ended.code and not found:
        return f"it ends with {ended.code}"
    cause = _VERDICTS[what] = _cause(found[1]) if ended.code and found else ""
    if len(_VERDICTS) > _MAX:
        _VERDICTS.popitem(last=False)
    if cause:
        _REFUSED_AT[directory] = time.monotonic()
    return cause


def reported_refused(read: Callable[[], Mapping[str, str]], directory: Path) -> str:
    """Return why Envoy refused these very files a moment ago; empty where it wasn't asked. Raises NoVerdictError."""
    if time.monotonic() > _REFUSED_AT.get(directory, -LATELY) + LATELY:
        return ""
    return _VERDICTS.get(_digest(static(read()), directory), "")


def _digest(configuration: str, directory: Path) -> Digest:
    """Digest what Envoy is asked, with the files that it names. Raises NoVerdictError where one isn't there."""
    try:
        requested = hashlib.sha256(f"{installed().path} {directory} {configuration}".encode())
        for name in sorted(set(_FILE.findall(configuration))):
            stat = (directory / name).stat()
            requested.update(f"{name} {stat.st_ino} {stat.st_mtime_ns} {stat.st_size}\n".encode())
    except OSError as error:
        raise NoVerdictError(f"{error.filename} can't be read, so no configuration is to blame") from error
    except ClientError as error:
        raise NoVerdictError(str(error)) from error
    return Digest(requested.hexdigest())


def _ended(configuration: str, directory: Path, timeout: float) -> EndedProgram:
    """Run Envoy until it has its verdict. Raises NoVerdictError."""
    try:
        with scratch("a configuration to validate") as place:
            files.write(place / rollout.BOOTSTRAP, configuration)
            command = (str(installed().path), "--config-path", str(place / rollout.BOOTSTRAP), *_ARGUMENTS)
            ended = Program(command, timeout, directory=directory, environment={}).run()
    except ClientError as error:
        raise NoVerdictError(str(error)) from error
    if ended.code in _ENDED_BY_OTHERS:
        raise NoVerdictError(f"Envoy was ended by signal {-ended.code} before it answered")
    return ended


def static(texts: Mapping[str, str]) -> str:
    """Make a bootstrap that has all resources of a proxy's files inside."""
    resources = {name: _resources(content) for name, content in texts.items()}
    named = {
        str(resource.get("name") or resource.get("cluster_name")): resource
        for name, listed in resources.items()
        if name not in {rollout.BOOTSTRAP, rollout.LISTENERS, rollout.CLUSTERS}
        for resource in listed
    }
    bootstrap = {key: value for key, value in _document(texts, rollout.BOOTSTRAP).items() if key != "dynamic_resources"}
    clusters = [_static_cluster(cluster, named) for cluster in resources.get(rollout.CLUSTERS, ())]
    listeners = resources.get(rollout.LISTENERS, ())
    return text({**bootstrap, "static_resources": _inlined({"clusters": clusters, "listeners": listeners}, named)})


def _static_cluster(cluster: JsonObject, named: Mapping[str, JsonObject]) -> JsonObject:
    if cluster.get("type") != "EDS":
        return cluster
    endpoints = named.get(str(cluster.get("name")), {"cluster_name": cluster.get("name")})
    apart = {key: value for key, value in cluster.items() if key != "eds_cluster_config"}
    return {**apart, "type": "STATIC", "load_assignment": endpoints}


def _inlined(value: Any, named: Mapping[str, JsonObject]) -> Any:  # noqa: ANN401 - any JSON
    """Put routes, certificates and authorities in place of the references to their files."""
    if isinstance(value, list | tuple):
        return [_inlined(item, named) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: _inlined(item, named) for key, item in value.items()}
    if rds := made.pop("rds", None):
        made["route_config"] = named.get(rds["route_config_name"], {"name": rds["route_config_name"]})
    if references := made.pop("tls_certificate_sds_secret_configs", None):
        made["tls_certificates"] = [named.get(each["name"], {}).get("tls_certificate", {}) for each in references]
    if reference := made.pop("validation_context_sds_secret_config", None):
        context = named.get(reference["name"], {}).get("validation_context", {})
        made["validation_context"] = {**made.pop("default_validation_context", {}), **context}
    if combined := made.pop("combined_validation_context", None):
        made |= combined
    return made


def _resources(content: str) -> list[JsonObject]:
    """Read a discovery response's resources, without the type that they need only there."""
    listed = rollout.document(content).get("resources", ())
    return [{key: value for key, value in resource.items() if key != "@type"} for resource in listed]


def _document(texts: Mapping[str, str], name: str) -> JsonObject:
    return rollout.document(texts.get(name, ""))


def _cause(complaint: str) -> str:
    """Return the innermost cause in Envoy's complaint, which may have the whole configuration before it."""
    innermost = complaint.rpartition(_CAUSED_BY)[2] if _CAUSED_BY in complaint else complaint
    terms = " ".join(innermost.partition("): ")[0].split()).removesuffix(")")
    return printable(terms[:_MAX_CAUSE])
