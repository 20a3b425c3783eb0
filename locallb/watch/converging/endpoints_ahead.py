"""Endpoints that a running Envoy is told of before the update that declares them: nobody waits for the rest of it.

A pod that comes or goes changes files of endpoints and nothing else, in no order, and Envoy asks nobody before it
follows. So they are put where they belong as soon as the stack is this update's; it finds them there, and notes them
in the state. Not here: any change with another file in it (`provider.resources.proxy_config`).
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from locallb.envoy import push, rollout
from locallb.model.errors import ClientError
from locallb.model.identities import ObjectKey
from locallb.planning.planned import Plan, PlannedProxy
from locallb.storage import files
from locallb.storage.proxy_directories import Proxies


def put_ahead(plan: Plan, keys: Collection[ObjectKey]) -> frozenset[ObjectKey]:
    """Write the endpoints of proxies of which nothing else is different; return whose those are, among `keys`."""
    return frozenset(planned.root for planned in plan.proxies if planned.root in keys and _put(planned))


def _put(planned: PlannedProxy) -> bool:
    """Return whether there was something to be written; what can't be is left to the update, which tells why."""
    if planned.routes:  # in its container, which may lack those to a new pod
        return False
    with suppress(ClientError):
        directory = Proxies.ours().find(planned.proxy.id)
        if directory is None or directory.owner != planned.owner:
            return False
        wanted, present = planned.rendered.files, push.texts(directory.path)
        different = [name for name, text in wanted.items() if present.get(name) != text]
        if present.keys() != wanted.keys() or not all(name.startswith(rollout.ENDPOINTS) for name in different):
            return False
        mode = files.SHARED if planned.run.by_group else files.PRIVATE
        for name in different:
            files.write(directory.path / name, wanted[name], mode=mode)
        return bool(different)
    return True
