"""The standard program: what `__main__.py` of every project of ours says at first, and whether it still says that."""

from __future__ import annotations

import ast
from pathlib import Path

from locallb.guarded import reader

_LARGEST = 64 << 10
"""Bytes of a program that may be the standard one."""
PROGRAM = '''\
"""The program, for `locallb up` and for `pulumi up`: serve the stack's Services. Resources of your own may follow."""

from locallb.program import serve

reading, plan = serve()
'''


def is_standard(path: Path) -> bool:
    """Return whether a program does what the standard one does and nothing else; False where it can't be read."""
    try:
        return _statements(reader.read(path, _LARGEST)) == _statements(PROGRAM.encode())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return False


def _statements(program: bytes) -> list[str]:
    """Return what a program does: layout, comments and texts that do nothing don't count."""
    return [ast.dump(statement) for statement in ast.parse(program).body if not _is_text(statement)]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
