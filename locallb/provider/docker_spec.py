"""A container's inputs, checked as the official plugin does, the request made from them, and the outputs it writes.

The embedded engine knows the properties that are declared and a little more. It fills in the plugin's defaults and its
notes of them; every other property is refused by its name, because one that is silently ignored is worse than one that
is missing.

Outputs come from the daemon's answer and the inputs. Every field is there in the official plugin's own form: one that
is missing, or empty where it is null there, would make the other engine plan a change. After a refresh the same plugin
writes some empty fields in another form; so do we. The goldens are recordings of it.

Not here: the diff and the requests (`docker_container`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from locallb.config.proxies import decimal_cpus
from locallb.resources.codec import Values, holds_unknown
from locallb.runtimes.docker.facts import lacks_network

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


META = (
    '{"e2bfb730-ecaa-11e6-8f88-34363bc7c4c0":{"create":1200000000000,"delete":1200000000000,'
    '"update":1200000000000},"schema_version":"2"}'
)
"""Time limits and schema version, as the bridge below the official plugin notes them."""
_MAPS = ("logOpts", "storageOpts", "sysctls", "tmpfs")
_RENAMED = {
    "dnsSearches": "dns_search",
    "entrypoints": "entrypoint",
    "envs": "env",
    "groupAdds": "group_add",
    "hosts": "host",
    "networkDatas": "network_data",
    "ulimits": "ulimit",
    "uploads": "upload",
}
_SINGLES: Mapping[str, Mapping[str, str]] = {
    "capabilities": {"adds": "add", "drops": "drop"},
    "healthcheck": {"tests": "test"},
}
"""Objects that are lists of one there, with the names of the lists in them."""
_NEVER_SET: Values = {
    **dict.fromkeys(("cgroupParent", "cgroupnsMode", "containerLogs", "cpuPeriod", "cpuQuota")),
    **dict.fromkeys(("gpus", "pidMode")),
    **dict.fromkeys(("attach", "logs", "publishAllPorts", "rm"), False),
    **{key: [] for key in ("deviceReadBps", "deviceReadIops", "deviceRequests", "deviceWriteBps", "deviceWriteIops")},
    **{key: [] for key in ("devices", "hosts", "mounts", "ulimits", "uploads")},
    "bridge": "",
}
"""What no input of ours sets."""
_EMPTY_LISTS = ("dns", "dnsOpts", "dnsSearches", "groupAdds")
_EMPTY_MAPS = ("storageOpts", "sysctls", "tmpfs")
_DATA = {
    "gateway": "Gateway",
    "globalIpv6Address": "GlobalIPv6Address",
    "globalIpv6PrefixLength": "GlobalIPv6PrefixLen",
    "ipAddress": "IPAddress",
    "ipPrefixLength": "IPPrefixLen",
    "ipv6Gateway": "IPv6Gateway",
    "macAddress": "MacAddress",
}


def made(inputs: Values, observed: Values) -> dict[str, Any]:
    """Write the outputs of a container that was created just now."""
    noted = without_notes(inputs)
    requested = {
        "capabilities": _capabilities(noted.get("capabilities")),
        "containerReadRefreshTimeoutMilliseconds": noted["containerReadRefreshTimeoutMilliseconds"],
        "destroyGraceSeconds": noted.get("destroyGraceSeconds"),
        "exitCode": None,
        "healthcheck": noted.get("healthcheck"),
        "logOpts": noted.get("logOpts"),
        "mustRun": noted["mustRun"],
        "networksAdvanced": [_network(network) for network in noted.get("networksAdvanced", ())],
        "removeVolumes": noted["removeVolumes"],
        "start": noted["start"],
        "volumes": [_volume(volume) for volume in noted.get("volumes", ())],
        "wait": noted.get("wait", False),
        "waitTimeout": noted["waitTimeout"],
        **dict.fromkeys((*_EMPTY_LISTS, *_EMPTY_MAPS)),
    }
    return _finished({**_NEVER_SET, **requested, **_observed(observed)})


def refreshed(before: Values, observed: Values) -> dict[str, Any]:
    """Write the outputs of a container that was looked at: `before` are those of the state.

    A paused one doesn't run: the official plugin doesn't see that, we do, so that the next update repairs it.
    """
    running = bool(observed["State"]["Running"]) and not observed["State"].get("Paused")
    forms = {
        **{key: before.get(key) or [] for key in _EMPTY_LISTS},
        **{key: before.get(key) or {} for key in (*_EMPTY_MAPS, "logOpts")},
        "networksAdvanced": [
            {**network, "gwPriority": network.get("gwPriority") or 0}
            for network in before["networksAdvanced"]
            if not lacks_network(observed, network["name"])
        ],
        "volumes": [{**volume, "readOnly": bool(volume.get("readOnly"))} for volume in before["volumes"]],
        "exitCode": before.get("exitCode") if running else observed["State"]["ExitCode"],
        "mustRun": running,
    }
    return _finished({**_NEVER_SET, **before, **forms, **_observed(observed)})


def updated(before: Values, inputs: Values, changed: frozenset[str]) -> dict[str, Any]:
    """Write the outputs of a container that was updated in place: only what changed is different."""
    noted = without_notes(inputs)
    return _finished({**before, **{key: noted.get(key) for key in changed}})


def is_complete(outputs: Values) -> bool:
    """Return whether outputs are whole, not those of a creation that failed under the other engine."""
    return {"volumes", "networksAdvanced", "mustRun", "labels"} <= outputs.keys()


def _finished(outputs: Values) -> dict[str, Any]:
    return {**outputs, "__meta": META, "__pulumi_raw_state_delta": _raw_state_delta(outputs)}


def _observed(observed: Values) -> dict[str, Any]:
    """Write what the daemon tells."""
    config, host = observed["Config"], observed["HostConfig"]
    labels = config.get("Labels") or {}
    return {
        "command": config.get("Cmd") or [],
        "cpuSet": host["CpusetCpus"],
        "cpuShares": host["CpuShares"],
        "cpus": decimal_cpus(host["NanoCpus"]) if host.get("NanoCpus") else None,
        "domainname": config["Domainname"],
        "entrypoints": config.get("Entrypoint") or [],
        "envs": config.get("Env") or [],
        "hostname": config["Hostname"],
        "id": observed["Id"],
        "image": config["Image"],
        "init": bool(host.get("Init")),
        "ipcMode": host["IpcMode"],
        "labels": [{"label": key, "value": labels[key]} for key in sorted(labels)],
        "logDriver": host["LogConfig"]["Type"],
        "maxRetryCount": host["RestartPolicy"]["MaximumRetryCount"],
        "memory": host["Memory"] // MIB,
        "memoryReservation": host["MemoryReservation"] // MIB,
        "memorySwap": host["MemorySwap"] // MIB,
        "name": observed["Name"].removeprefix("/"),
        "networkDatas": _network_data(observed),
        "networkMode": _network_mode(observed),
        "platform": observed["Platform"],
        "ports": _ports(observed),
        "privileged": host["Privileged"],
        "readOnly": host["ReadonlyRootfs"],
        "restart": host["RestartPolicy"]["Name"],
        "runtime": host["Runtime"],
        "securityOpts": host.get("SecurityOpt") or [],
        "shmSize": host["ShmSize"] // MIB,
        "stdinOpen": config["OpenStdin"],
        "stopSignal": config.get("StopSignal") or "",
        "stopTimeout": config.get("StopTimeout") or 0,
        "tty": config["Tty"],
        "user": config["User"],
        "usernsMode": host["UsernsMode"],
        "workingDir": config["WorkingDir"],
    }


def _network_mode(observed: Values) -> str:
    mode = str(observed["HostConfig"]["NetworkMode"])
    return "bridge" if mode == "default" else mode


def _network_data(observed: Values) -> list[dict[str, Any]]:
    networks: Mapping[str, Values] = observed["NetworkSettings"]["Networks"]
    return [
        {**{ours: networks[name][theirs] for ours, theirs in _DATA.items()}, "networkName": name}
        for name in sorted(networks)
    ]


def _ports(observed: Values) -> list[dict[str, Any]]:
    """List published ports by container port and protocol; those of one port in the daemon's order.

    A container that has ended publishes them when it is started again. The official plugin lists none then, so it
    would replace the container, even while Docker restarts it.
    """
    ports, state = [], observed["State"]
    runs = state["Running"] and not state.get("Restarting")
    published = observed["NetworkSettings"]["Ports"] if runs else observed["HostConfig"].get("PortBindings")
    for inner, places in (published or {}).items():
        number, _, protocol = inner.partition("/")
        for place in places or ():
            port = {"external": int(place["HostPort"]), "internal": int(number), "ip": place["HostIp"]}
            ports.append({**port, "protocol": protocol})
    return sorted(ports, key=lambda port: (port["internal"], port["protocol"]))


def _capabilities(capabilities: Values | None) -> dict[str, Any] | None:
    if capabilities is None:
        return None
    return {"adds": sorted(capabilities.get("adds") or ()), "drops": sorted(capabilities.get("drops") or ())}


def _network(network: Values) -> dict[str, Any]:
    blank: dict[str, Any] = {"aliases": [], "driverOpts": [], "gwPriority": None, "linkLocalIps": []}
    return {**blank, "ipv4Address": "", "ipv6Address": "", "macAddress": "", **network}


def _volume(volume: Values) -> dict[str, Any]:
    blank: dict[str, Any] = {"fromContainer": "", "hostPath": "", "readOnly": None}
    return {**blank, "selinuxRelabel": "", "volumeName": "", **volume}


def _raw_state_delta(outputs: Values) -> dict[str, Any]:
    """Describe how the bridge below the official plugin gets from `outputs` back to its own raw state.

    It lists which outputs are arrays and maps, which wrap one object, and which have another name there. Without it the
    other engine can't read a state exactly.
    """
    shapes: dict[str, Any] = {key: _array(value) for key, value in outputs.items() if isinstance(value, list)}
    shapes |= {key: {"map": {}} for key in _MAPS if outputs.get(key) is not None}
    for key, renamed in _SINGLES.items():
        if outputs.get(key) is not None:
            inner: dict[str, Any] = {name: {"arr": {}} for name in renamed}
            shapes[key] = {"plu": {"i": {"obj": {"ps": inner, "renamed": dict(renamed)}}}}
    shapes.setdefault("capabilities", {"plu": {"i": {}}})
    return {"obj": {"ps": shapes, "renamed": _RENAMED}}


def _array(items: list[Any]) -> dict[str, Any]:
    elements = {str(number): _object(item) for number, item in enumerate(items) if isinstance(item, Mapping)}
    return {"arr": {"el": elements} if elements else {}}


def _object(item: Values) -> dict[str, Any]:
    inner = {key: _array(value) for key, value in item.items() if isinstance(value, list)}
    return {"obj": {"ps": inner} if inner else {}}
