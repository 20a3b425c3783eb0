"""Sources: Services, Nodes, EndpointSlices, held addresses and facts of the host, read into one Snapshot."""

from __future__ import annotations


class SourceError(Exception):
    """A source can't be read and there is nothing to go by instead: the run stops. One sentence a source."""
