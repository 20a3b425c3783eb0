"""Resources that refer to each other."""

from __future__ import annotations

from locallb.engine.state.resource import ResourceState

URN = "urn:pulumi:dev::local-lb::locallb:index:Reachable::"


def resource(name: str, *needs: str) -> ResourceState:
    """Make a resource that refers to others."""
    kind = "locallb:index:Reachable"
    return ResourceState(f"{URN}{name}", kind, custom=True, id=name, dependencies=tuple(URN + name for name in needs))
