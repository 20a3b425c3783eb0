"""The classes `local-lb` that a stack makes in running clusters, a GatewayClass and an IngressClass: what they have.

One decision for the planner, the informers and the resource: which parts of an object are ours, how they differ from
what is wanted, and the patch. An object without this stack's label is another owner's. Not here: whether a cluster
gets a class (`planning.own_classes`), and requests (`provider.own_class`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from locallb.model.fields import at, text_of, texts_of
from locallb.model.gateway_objects import CONTROLLER
from locallb.model.gateway_of_cluster import INGRESS_CONTROLLER
from locallb.model.identities import ClusterName, ObjectKind, OwnerId

NAME = "local-lb"
"""metadata.name of both."""
OWNER_LABEL = "local-lb.dev/owner"
"""The label with the stack that made a class and removes it."""
CLUSTER_ANNOTATION = "local-lb.dev/cluster"
"""The annotation with the stack's name for the cluster: a source that got another name doesn't remove the class."""
DEFAULT_ANNOTATION = "ingressclass.kubernetes.io/is-default-class"
_CLASS_ANNOTATION = "kubernetes.io/ingress.class"
FINALIZER = "gateway-exists-finalizer.gateway.networking.k8s.io"
"""Gateway API's finalizer of a GatewayClass that a Gateway uses: it goes only after its Gateways."""
_CONTROLLERS = MappingProxyType(
    {
        ObjectKind.GATEWAY_CLASS: ("controllerName", CONTROLLER, "parametersRef"),
        ObjectKind.INGRESS_CLASS: ("controller", INGRESS_CONTROLLER, "parameters"),
    }
)
"""The fields of spec: that of the controller with its value, and that of parameters, of which ours have none."""
KINDS: Mapping[ObjectKind, str] = MappingProxyType(
    {ObjectKind.GATEWAY_CLASS: "GatewayClass", ObjectKind.INGRESS_CLASS: "IngressClass"}
)


class ObservedClass(Struct, frozen=True):
    """What an object of a cluster has of the parts that count."""

    controller: str
    owner: str = ""
    """The value of the label."""
    cluster: str = ""
    """The value of the annotation."""
    is_default: bool = False
    is_held: bool = False
    """It has the finalizer."""
    has_parameters: bool = False
    deleting: bool = False


class ClassFacts(Struct, frozen=True):
    """What is known of one kind of classes in a cluster that gets one."""

    own: ObservedClass | None = None
    """The class `local-lb`, whoever made it."""
    has_other_default: bool = False
    """Another class is the default."""
    lacks: tuple[str, ...] = ()
    """What this user may not do with the class."""
    is_served: bool = True
    """The cluster has the kind."""
    is_current: bool = True
    """It is so now; otherwise it was so when that was known last."""


class HeldClass(Struct, frozen=True):
    """A class that the state has."""

    cluster: ClusterName
    kind: ObjectKind
    is_default: bool
    is_used: bool


class WantedClass(Struct, frozen=True):
    """The wanted class."""

    kind: ObjectKind
    owner: OwnerId
    cluster: ClusterName
    is_default: bool = False
    is_used: bool = False
    """A Gateway names it."""

    @property
    def controller(self) -> str:
        """Return which controller serves it."""
        return controller_of(self.kind)


def controller_of(kind: ObjectKind) -> str:
    """Return our controller's name in classes of a kind."""
    return _CONTROLLERS[kind][1]


def observed_class(kind: ObjectKind, document: Mapping[Any, Any]) -> ObservedClass:
    """Read an object. Never raises."""
    controller, _, parameters = _CONTROLLERS[kind]
    spec = at(document, "spec")
    return ObservedClass(
        text_of(at(spec, controller)),
        text_of(at(document, "metadata", "labels", OWNER_LABEL)),
        text_of(at(document, "metadata", "annotations", CLUSTER_ANNOTATION)),
        text_of(at(document, "metadata", "annotations", DEFAULT_ANNOTATION)) == "true",
        FINALIZER in _finalizers(document),
        at(spec, parameters) is not None,
        at(document, "metadata", "deletionTimestamp") is not None,
    )


def class_facts(kind: ObjectKind, documents: Iterable[Mapping[Any, Any]], lacks: tuple[str, ...] = ()) -> ClassFacts:
    """Return what all classes of a kind come to."""
    own, has_other_default = None, False
    for document in documents:
        observed = observed_class(kind, document)
        if at(document, "metadata", "name") == NAME:
            own = observed
        elif kind is ObjectKind.INGRESS_CLASS and observed.is_default:
            has_other_default = True
    return ClassFacts(own, has_other_default, lacks)


def class_changed(kind: ObjectKind, before: Mapping[Any, Any] | None, after: Mapping[Any, Any] | None) -> bool:
    """Return whether two versions of an object differ in what counts of our class; None: there is none."""
    if NAME not in {at(document, "metadata", "name") for document in (before, after)}:
        return False
    earlier, later = (observed_class(kind, document) if document else None for document in (before, after))
    return earlier != later


def class_named_by(kind: ObjectKind, document: Mapping[Any, Any]) -> str:
    """Return the class that a Gateway, or an Ingress, names; empty if it names none."""
    if kind is ObjectKind.GATEWAY_CLASS:
        return text_of(at(document, "spec", "gatewayClassName"))
    annotated = at(document, "metadata", "annotations", _CLASS_ANNOTATION)
    return text_of(annotated) or text_of(at(document, "spec", "ingressClassName"))


def class_differences(observed: ObservedClass | None, wanted: WantedClass) -> tuple[str, ...]:
    """Name the fields of our class that aren't as wanted; a missing object differs as a whole."""
    return ("existence",) if observed is None else tuple(_differences(observed, wanted))


def _differences(observed: ObservedClass, wanted: WantedClass) -> Iterator[str]:
    if observed.owner != wanted.owner:
        yield "labels"
    is_default = wanted.is_default if wanted.kind is ObjectKind.INGRESS_CLASS else observed.is_default
    if (observed.cluster, observed.is_default) != (wanted.cluster, is_default):
        yield "annotations"
    if observed.is_held != wanted.is_used and not (observed.deleting and wanted.is_used):
        yield "finalizers"  # an API adds none to what is being deleted
    if observed.has_parameters:
        yield _CONTROLLERS[wanted.kind][2]


def class_body(wanted: WantedClass) -> dict[str, object]:
    """Return the object to create."""
    field, controller, _ = _CONTROLLERS[wanted.kind]
    annotations = {CLUSTER_ANNOTATION: wanted.cluster, **({DEFAULT_ANNOTATION: "true"} if wanted.is_default else {})}
    metadata: dict[str, object] = {"name": NAME, "labels": {OWNER_LABEL: wanted.owner}, "annotations": annotations}
    if wanted.is_used:
        metadata["finalizers"] = [FINALIZER]
    return {"metadata": metadata, "spec": {field: controller}}


def class_patch(document: Mapping[Any, Any], wanted: WantedClass) -> dict[str, object] | None:
    """Return the merge patch over the version that was read; None if everything is as wanted."""
    observed = observed_class(wanted.kind, document)
    differing = class_differences(observed, wanted)
    if not differing:
        return None
    metadata: dict[str, object] = {"resourceVersion": text_of(at(document, "metadata", "resourceVersion"))}
    patch: dict[str, object] = {"metadata": metadata}
    if "labels" in differing:
        metadata["labels"] = {OWNER_LABEL: wanted.owner}
    if "annotations" in differing:
        default = {DEFAULT_ANNOTATION: "true" if wanted.is_default else None}
        metadata["annotations"] = {CLUSTER_ANNOTATION: wanted.cluster, **default}
    if "finalizers" in differing:
        others = [name for name in _finalizers(document) if name != FINALIZER]
        metadata["finalizers"] = [*others, FINALIZER] if wanted.is_used else others
    if observed.has_parameters:
        patch["spec"] = {_CONTROLLERS[wanted.kind][2]: None}
    return patch


def _finalizers(document: Mapping[Any, Any]) -> list[str]:
    return texts_of(at(document, "metadata", "finalizers"))
