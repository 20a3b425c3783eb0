"""The provider's error: one sentence, which the engine shows as it is."""

from __future__ import annotations

from locallb.model.errors import ClientError


class ProviderError(Exception):
    """A resource can't be had: one sentence with the object, the value and the remedy."""


def sentence(error: BaseException | None) -> str | None:
    """Find the sentence that is meant for the user in an error or in what it was raised from; None for a defect."""
    while error is not None:
        if isinstance(error, ProviderError | ClientError):
            return str(error)
        error = error.__cause__ or error.__context__
    return None
