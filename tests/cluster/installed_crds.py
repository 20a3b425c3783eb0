"""Installing the CRDs of Gateway API by the command, and removing them."""

from __future__ import annotations

from functools import partial
from typing import Any

from lightkube import ApiError, Client
from lightkube.generic_resource import create_global_resource

from locallb.gateway.crds import DEFINITION, carried, name_of
from tests.support.cluster_gateways import CRD
from tests.support.control_plane import ControlPlane
from tests.support.stages import Done, Stage
from tests.support.waiting import becomes

_ADMISSION = "admissionregistration.k8s.io"
POLICY = create_global_resource(_ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
BINDING = create_global_resource(
    _ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"
)
GUARD = "safe-upgrades.gateway.networking.k8s.io"


def remove(client: Client) -> None:
    """Remove what may have been installed, the guard first."""
    for kind, name in ((BINDING, GUARD), (POLICY, GUARD), *((CRD, name) for name in definitions())):
        becomes(partial(is_removed, client, kind, name), f"{name} is gone")


def is_removed(client: Client, kind: Any, name: str) -> bool:  # noqa: ANN401 - a type of the client
    """Delete an object, and return whether there is none any more."""
    try:
        client.delete(kind, name)
    except ApiError as error:
        return error.status.code == 404
    return False


def definitions() -> list[str]:
    called = [name_of(each) for each in carried().channels["experimental"]]
    return [name for kind, name in called if kind == DEFINITION]


def install(play: Stage, plane: ControlPlane, *terms: str, user: str = "owner") -> Done:
    """Run the command as a user of the cluster."""
    kubeconfig = plane.root / f"{user}.kubeconfig"
    return play.run("gateway", "install-crds", "--kubeconfig", str(kubeconfig), "--context", plane.name, *terms)
