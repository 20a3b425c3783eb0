"""A container's inputs, checked as the official plugin does, and the body of /containers/create made from them.

The embedded engine knows the properties that the components declare and a little more. It fills in the plugin's
defaults and its notes of them; every other property is refused by its name, because one that is silently ignored is
worse than one that is missing.

Not here: the diff (`differences`), and the requests (`container`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from locallb.resources.codec import Values, holds_unknown

DEFAULTS: Values = {
    "containerReadRefreshTimeoutMilliseconds": 15000,
    "mustRun": True,
    "networkMode": "bridge",
    "removeVolumes": True,
    "restart": "no",
    "start": True,
    "waitTimeout": 60,
}
_HEALTH: Values = {"interval": "0s", "retries": 0, "startInterval": "0s", "startPeriod": "0s", "timeout": "0s"}
_PORT: Values = {"ip": "0.0.0.0", "protocol": "tcp"}  # noqa: S104 - the official plugin's default, told in the state
NOTE = "__defaults"
"""The list of properties that got their value here, in the inputs and in every object of them."""

SUPPORTED = frozenset(
    {
        *DEFAULTS,
        *("capabilities", "command", "cpuShares", "cpus", "destroyGraceSeconds", "entrypoints", "envs", "healthcheck"),
        *("image", "labels", "logDriver", "logOpts", "memory", "memorySwap", "name", "networksAdvanced", "ports"),
        *("readOnly", "securityOpts", "stopSignal", "stopTimeout", "user", "volumes", "wait", "workingDir"),
    }
)
_RESTARTS = ("no", "always", "unless-stopped", "on-failure")
_REMEDY = "is not known to the embedded engine; use `pulumi up` for it"


def checked(given: Values) -> dict[str, Any]:
    """Return the inputs with the defaults, and the notes of which they are."""
    inputs = {key: _noted(key, value) for key, value in given.items() if key != NOTE and value is not None}
    missing = sorted(DEFAULTS.keys() - inputs.keys())
    return {NOTE: missing, **inputs, **{key: DEFAULTS[key] for key in missing}}


def faults(given: Values) -> Iterator[tuple[str, str]]:
    """Name what can't be had here: pairs of the property and why."""
    for key in sorted(given.keys() - SUPPORTED - {NOTE}):
        yield key, f"property {key} of docker:index/container:Container {_REMEDY}"
    yield from ((key, "is missing; a container needs it") for key in ("name", "image") if not given.get(key))
    if given.get("wait"):
        yield "wait", f"wait: true {_REMEDY}"
    restart = given.get("restart", "no")
    if not holds_unknown(restart) and restart not in _RESTARTS:
        yield "restart", f"{restart!r} is no restart policy; use one of {', '.join(_RESTARTS)}"
    for volume in given.get("volumes") or ():
        if not isinstance(volume, Mapping) or not {*volume} <= {NOTE, "hostPath", "containerPath", "readOnly"}:
            yield "volumes", f"a volume other than a directory of the host {_REMEDY}"


def without_notes(value: Any) -> Any:  # noqa: ANN401 - any JSON-like value
    """Leave out the notes of defaults inside a value."""
    if isinstance(value, Mapping):
        return {key: without_notes(item) for key, item in value.items() if key != NOTE}
    if isinstance(value, list | tuple):
        return [without_notes(item) for item in value]
    return value


def _noted(key: str, value: Any) -> Any:  # noqa: ANN401 - any JSON-like value
    """Add the notes, and the defaults of objects that have any."""
    if holds_unknown(value):
        return value
    if key == "healthcheck":
        return _filled(value, _HEALTH)
    if key == "ports":
        return [_filled(item, _PORT) for item in value]
    if key in {"labels", "volumes", "networksAdvanced"}:
        return [_filled(item, {}) for item in value]
    return _filled(value, {}) if key == "capabilities" else value


def _filled(given: Values, defaults: Values) -> dict[str, Any]:
    own = {key: item for key, item in given.items() if key != NOTE and item is not None}
    missing = sorted(defaults.keys() - own.keys())
    return {NOTE: missing, **own, **{key: defaults[key] for key in missing}}


MIB = 1 << 20
NANO = 1_000_000_000
PIDS = 2_048
"""Most processes and threads of a container, as Podman has it for all; Envoy has a few and one per CPU. The official
plugin knows no such property, so it is no input: a container without it stays as it is."""
_UNITS = {"h": 3_600_000_000_000, "m": 60_000_000_000, "ms": 1_000_000, "us": 1_000, "s": 1_000_000_000}


def body(inputs: Values) -> dict[str, Any]:
    """Make the body."""
    config: dict[str, Any] = {
        "Image": inputs["image"],
        "Labels": {label["label"]: label["value"] for label in inputs.get("labels", ())},
        "Env": inputs.get("envs") or None,
        "Cmd": inputs.get("command") or None,
        "Entrypoint": inputs.get("entrypoints") or None,
        "User": inputs.get("user", ""),
        "WorkingDir": inputs.get("workingDir", ""),
        "Volumes": {volume["containerPath"]: {} for volume in inputs.get("volumes", ())} or None,
        "ExposedPorts": {_port(port): {} for port in inputs.get("ports", ())} or None,
        "StopSignal": inputs.get("stopSignal"),
        "StopTimeout": inputs.get("stopTimeout"),
        "Healthcheck": _health(inputs.get("healthcheck")),
        "HostConfig": _host_config(inputs),
    }
    return {key: value for key, value in config.items() if value is not None}


def limits(inputs: Values, changed: frozenset[str]) -> dict[str, Any]:
    """Make the body of /containers/<id>/update for those of the changed properties that Docker can update."""
    document: dict[str, Any] = {}
    if "memory" in changed or "memorySwap" in changed:
        document |= {"Memory": inputs["memory"] * MIB, "MemorySwap": inputs["memorySwap"] * MIB}
    if "cpuShares" in changed:
        document["CpuShares"] = inputs.get("cpuShares", 0)
    if "restart" in changed:
        document["RestartPolicy"] = {"Name": inputs["restart"]}
    return document


def nano_cpus(cpus: str | None) -> int:
    """Read a number of CPUs into billionths; 0 means no limit."""
    return round(float(cpus) * NANO) if cpus else 0


def _host_config(inputs: Values) -> dict[str, Any]:
    capabilities = inputs.get("capabilities", {})
    config: dict[str, Any] = {
        "Binds": [_bind(volume) for volume in inputs.get("volumes", ())] or None,
        "LogConfig": _log(inputs),
        "NetworkMode": inputs["networkMode"],
        "PortBindings": _bindings(inputs) or None,
        "RestartPolicy": {"Name": inputs["restart"]},
        "CapAdd": capabilities.get("adds"),
        "CapDrop": capabilities.get("drops"),
        "ReadonlyRootfs": inputs.get("readOnly", False),
        "SecurityOpt": inputs.get("securityOpts"),
        "Memory": inputs.get("memory", 0) * MIB,
        "MemorySwap": inputs.get("memorySwap", 0) * MIB,
        "CpuShares": inputs.get("cpuShares", 0),
        "NanoCpus": nano_cpus(inputs.get("cpus")),
        "PidsLimit": PIDS,
        "Init": False,
    }
    return {key: value for key, value in config.items() if value is not None}


def networks(inputs: Values) -> dict[str, dict[str, Any]]:
    """Make, by network, what a container is connected with that is made on the bridge, as the official plugin does."""
    return {network["name"]: {"IPAMConfig": _addresses(network)} for network in inputs.get("networksAdvanced", ())}


def _addresses(network: Values) -> dict[str, str]:
    pairs = {"IPv4Address": network.get("ipv4Address"), "IPv6Address": network.get("ipv6Address")}
    return {key: value for key, value in pairs.items() if value}


def _log(inputs: Values) -> dict[str, Any] | None:
    if "logDriver" not in inputs and "logOpts" not in inputs:
        return None
    return {"Type": inputs.get("logDriver", ""), "Config": dict(inputs.get("logOpts", {}))}


def _bind(volume: Values) -> str:
    return f"{volume['hostPath']}:{volume['containerPath']}:{'ro' if volume.get('readOnly') else 'rw'}"


def _port(port: Values) -> str:
    return f"{port['internal']}/{port['protocol']}"


def _bindings(inputs: Values) -> dict[str, list[dict[str, str]]]:
    bindings: dict[str, list[dict[str, str]]] = {}
    for port in inputs.get("ports", ()):
        place = {"HostIp": port["ip"], "HostPort": str(port.get("external", ""))}
        bindings.setdefault(_port(port), []).append(place)
    return bindings


def _health(check: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not check:
        return None
    times = {"Interval": "interval", "Timeout": "timeout", "StartPeriod": "startPeriod"}
    document = {name: _nanoseconds(check[key]) for name, key in times.items()}
    return {"Test": check["tests"], "Retries": check["retries"], **document}


def _nanoseconds(text: str) -> int:
    """Read a duration of one unit, such as 5s or 500ms."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    return round(float(number) * _UNITS[text.removeprefix(number)])
