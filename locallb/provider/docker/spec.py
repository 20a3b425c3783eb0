"""The body of /containers/create for the Engine API, from checked inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locallb.resources.values import Values

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
