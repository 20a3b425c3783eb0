"""Regular expressions that are compiled when they are first used.

Compiling the expressions of all modules takes a tenth of the time of a short command, which uses few of them.
"""

from __future__ import annotations

import re
from typing import AnyStr, Generic, cast

_METHODS = ("findall", "finditer", "flags", "fullmatch", "groups", "match", "search", "split", "sub", "subn")


class _Deferred(Generic[AnyStr]):
    """Attributes are those of the expression, which is compiled for the first one."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self.pattern: AnyStr = text
        self._flags = flags

    def __reduce__(self) -> tuple[object, ...]:
        return pattern, (self.pattern, self._flags)

    def __getattr__(self, name: str) -> object:
        compiled = re.compile(self.pattern, self._flags)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression, to be compiled when it is used."""
    return cast("re.Pattern[AnyStr]", _Deferred(text, flags))
