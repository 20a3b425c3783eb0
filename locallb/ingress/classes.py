"""Selects the Ingresses that are ours, groups them by shared address, and names the objects that they need.

Not here: the served traffic (`translation`), and requests to a cluster (`kubernetes.api.discovery`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from locallb.config.settings import AddressPer, IngressSettings, Settings
from locallb.gateway.kinds import gathered
from locallb.gateway.needs import SECRET, SERVICE, ExistingObjects, of_kinds
from locallb.model.gateway_objects import Meta, Named, Reference
from locallb.model.gateway_of_cluster import INGRESS_CONTROLLER, GatewayObjects, Ingress, ObjectOfCluster
from locallb.model.identities import ClusterName, ObjectKey, ObjectKind
from locallb.model.texts import clipped, counted, few

_EXAMPLES = 3


def our_classes(objects: GatewayObjects, settings: IngressSettings) -> frozenset[str]:
    """Return the served classes: all of our controller, or the one that the stack names."""
    controllers = {ingress_class.meta.key.name: ingress_class.controller for ingress_class in objects.ingress_classes}
    if settings.is_off:
        return frozenset()
    if settings.class_name is None:
        return frozenset(name for name, controller in controllers.items() if controller == INGRESS_CONTROLLER)
    is_free = controllers.get(settings.class_name, INGRESS_CONTROLLER) == INGRESS_CONTROLLER
    return frozenset({settings.class_name} if is_free else ())


def class_of(ingress: Ingress, objects: GatewayObjects) -> str:
    """Return the class of an Ingress: without a class name the default one, if any; else empty."""
    if ingress.class_name is not None:
        return ingress.class_name
    return next(
        (ingress_class.meta.key.name for ingress_class in objects.ingress_classes if ingress_class.is_default), ""
    )


def of_our_classes(objects: GatewayObjects, settings: IngressSettings) -> tuple[Ingress, ...]:
    """Return the Ingresses of the classes that are served, the oldest first."""
    ours = our_classes(objects, settings)
    mine = (
        ingress for ingress in objects.ingresses if class_of(ingress, objects) in ours and not ingress.meta.deleting
    )
    return tuple(sorted(mine, key=lambda ingress: ingress.meta.age)) if ours else ()


def our_ingresses(objects: GatewayObjects, settings: Settings) -> tuple[Ingress, ...]:
    """Return the Ingresses that the stack selects, the oldest first."""
    return tuple(
        ingress for ingress in of_our_classes(objects, settings.ingress) if is_selected(ingress.meta, settings)
    )


def grouped(objects: GatewayObjects, settings: Settings) -> Mapping[ObjectKey, tuple[Ingress, ...]]:
    """Return the Ingresses that share an address, the oldest first, by the key of its owner."""
    groups: dict[ObjectKey, list[Ingress]] = {}
    for ingress in our_ingresses(objects, settings):
        key = _key(ingress, class_of(ingress, objects), objects.cluster, settings.ingress.address)
        groups.setdefault(key, []).append(ingress)
    return {key: tuple(ingresses) for key, ingresses in groups.items()}


def _key(ingress: Ingress, name: str, cluster: ClusterName, per: AddressPer) -> ObjectKey:
    match per:
        case AddressPer.INGRESS:
            return ObjectKey(cluster, *ingress.meta.key, ObjectKind.INGRESS)
        case AddressPer.NAMESPACE:
            return ObjectKey(cluster, ingress.meta.key.namespace, name, ObjectKind.INGRESS_CLASS)
        case AddressPer.CLASS:
            return ObjectKey(cluster, "", name, ObjectKind.INGRESS_CLASS)


def is_selected(meta: Meta, settings: Settings) -> bool:
    """Return whether the stack serves objects of this namespace and with these labels."""
    labels = meta.labels
    is_near = not settings.namespaces or meta.key.namespace in settings.namespaces
    return is_near and all(labels.get(label) == value for label, value in settings.selector.items())


def of_missing_classes(objects: GatewayObjects, settings: IngressSettings) -> tuple[Ingress, ...]:
    """Return the Ingresses of which the cluster hasn't the class, whoever would serve it; none where that is off."""
    existing = {"", *(each.meta.key.name for each in objects.ingress_classes), *our_classes(objects, settings)}
    missing = (ingress for ingress in objects.ingresses if class_of(ingress, objects) not in existing)
    return () if settings.is_off else tuple(ingress for ingress in missing if not ingress.meta.deleting)


def left_out(objects: GatewayObjects, settings: Settings) -> Iterator[str]:
    """Return which Ingresses aren't served, where any could be, unless it is because their class isn't there."""
    ours = our_classes(objects, settings.ingress)
    mine = of_our_classes(objects, settings.ingress)
    names = {ingress.meta.key for ingress in mine}
    others = [ingress for ingress in objects.ingresses if ingress.meta.key not in names and not ingress.meta.deleting]
    missing = {ingress.meta.key for ingress in of_missing_classes(objects, settings.ingress)}
    named = [ingress for ingress in others if class_of(ingress, objects) and ingress.meta.key not in missing]
    classless = [ingress for ingress in others if not class_of(ingress, objects)]
    served = ", ".join(sorted(map(clipped, ours)))
    if named and ours:
        yield _left_out(objects, named, f"of another class (served: {served})")
    if classless and ours:
        remedy = f"write one into spec.ingressClassName (served: {served}), or annotate its IngressClass as the default"
        yield _left_out(objects, classless, f"they have no class, and no IngressClass is the default; {remedy}")
    if unselected := [ingress for ingress in mine if not is_selected(ingress.meta, settings)]:
        yield _left_out(objects, unselected, "local-lb:namespaces or local-lb:selector leaves them out")


def _left_out(objects: GatewayObjects, ingresses: list[Ingress], why: str) -> str:
    examples = few(
        [f"{objects.cluster}/ingresses/{clipped(str(ingress.meta.key))}" for ingress in ingresses], _EXAMPLES
    )
    return f"{counted(len(ingresses), 'Ingress', 'Ingresses')} left out: {why}: {examples}"


def class_notices(objects: GatewayObjects, settings: IngressSettings) -> Iterator[str]:
    """Yield why the class that the stack names isn't served, and notices about unread parts of classes."""
    for ingress_class in objects.ingress_classes:
        name = clipped(ingress_class.meta.key.name)
        if (
            settings.class_name == ingress_class.meta.key.name
            and ingress_class.controller != INGRESS_CONTROLLER
            and not settings.is_off
        ):
            yield (
                f"{objects.cluster}: IngressClass {name} has the controller {clipped(ingress_class.controller)}, so its"
                f" Ingresses are left alone; give it {INGRESS_CONTROLLER}, or name another class in local-lb:ingress"
            )
        elif ingress_class.controller == INGRESS_CONTROLLER and ingress_class.has_parameters:
            yield f"{objects.cluster}: IngressClass {name} names parameters, and none are known here; leave them out"


CLASS, INGRESS = "IngressClass", "Ingress"
_EVERY_CLASS = IngressSettings()


def wanted_kinds(served: Collection[str], existing: ExistingObjects) -> tuple[str, ...]:
    """Return the needed kinds: readable ones and core ones.

    They are requested in stages, so that nothing else is: classes first, then Ingresses if a class is ours, then
    Secrets and Services if an Ingress is of such a class.
    """
    if not {CLASS, INGRESS} <= set(served):
        return ()
    if not any(our_classes(objects, _EVERY_CLASS) for objects in of_kinds(existing, CLASS)):
        return (CLASS,)
    if not any(of_our_classes(objects, _EVERY_CLASS) for objects in of_kinds(existing, CLASS, INGRESS)):
        return CLASS, INGRESS
    return CLASS, INGRESS, SECRET, SERVICE


def named_objects(objects: Iterable[ObjectOfCluster]) -> frozenset[Reference]:
    """Return the Secrets that Ingresses name as certificates, in their own namespaces: others are never read."""
    return frozenset(
        Reference("", SECRET, Named(ingress.meta.key.namespace, entry.secret))
        for of_cluster in gathered(objects).values()
        for ingress in of_our_classes(of_cluster, _EVERY_CLASS)
        for entry in ingress.tls
        if entry.secret
    )
