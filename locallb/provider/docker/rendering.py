"""A container's outputs as the official plugin writes them, from the daemon's answer and the inputs.

Every field is there in the official plugin's own form: one that is missing, or empty where it is null there, would make
the other engine plan a change. After a refresh the same plugin writes some empty fields in another form; so do we.
The goldens are recordings of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locallb.config.proxies import decimal_cpus
from locallb.provider.docker.spec import MIB, without_notes
from locallb.resources.codec import Values
from locallb.runtimes.docker.facts import lacks_network

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
