"""Edits of a stack's file, as text: a key is set or removed, an item of a list is added, replaced or removed. Pure.

Only the lines of what changes are written again: every other line stays as it is, byte for byte, with its comments. An
edit is refused where its result would be read otherwise, as may be with anchors, tags and several documents.

Not here: which keys and values are accepted (`config.parsing`), and the file itself (`commands.configuration`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from locallb.cli.failures import Refused
from locallb.engine.state.project import parsed
from locallb.patterns import pattern

Path = Sequence[str | int]
"""Keys and indexes of lists, from the outermost; the index behind the last item is that of a new one."""
REMOVED: Final = object()
"""In place of a value: the key or the item goes."""
_BYTE_ORDER = "\ufeff"
_COLON = pattern(r"\s*:")
_DASHES = " -"
"""Before the first key of an item of a list."""
_STEP = 2


class NotEditable(Refused):
    """What a user wrote can't be changed without changing more of it: one sentence."""


def edited(text: str, path: Path, value: object) -> str:
    """Return a text of YAML with another value at `path`, or without it.

    Raises NotEditable, and YAMLError or ValueError where the text is no YAML.
    """
    if text.startswith(_BYTE_ORDER):  # the parser's marks don't count it
        return _BYTE_ORDER + edited(text.removeprefix(_BYTE_ORDER), path, value)
    content: Any = parsed(text.encode())
    try:
        expected = _changed(content, path, value)
        changed = _edit(text, yaml.compose(text, yaml.CSafeLoader), content, path, value)
        if parsed(changed.encode()) == expected:
            return changed
    except (yaml.YAMLError, ValueError, TypeError, LookupError, RecursionError):
        pass
    what = ".".join(str(part) for part in path)
    raise NotEditable(f"{what} can't be changed without changing what stands around it: edit the file by hand")


def with_items(text: str, path: Path, changes: Mapping[int, object]) -> str:
    """Return a text with other items of the list at `path`, by their numbers; those behind its end are new.

    Within an item only that changes which differs, so that its comments stay.

    Raises as `edited` does.
    """
    held: Any = parsed(text.encode())
    for part in path:
        held = (held or {}).get(part)
    if isinstance(held, str) and changes:  # JSON, as the official command line writes lists
        held = json.loads(held)
        text = edited(text, path, held)
    length = len(held or ())
    if (
        length
        and [*changes]
        and all(changes.get(number) is REMOVED for number in range(length))
        and len(changes) == length
    ):
        return edited(text, path, [])
    for number in sorted(changes, key=lambda number: (number >= length, number if number >= length else -number)):
        before = held[number] if number < length else None
        for place, value in _differences(before, changes[number]):
            text = edited(text, (*path, number, *place), value)
    return text


def _differences(before: Any, after: Any) -> Iterator[tuple[Path, object]]:  # noqa: ANN401 - whatever YAML has
    """Return what makes one value of another: of keys and items those that differ, otherwise the whole."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {**before, **after}:
            if key in before and key in after:
                yield from (((key, *place), value) for place, value in _differences(before[key], after[key]))
            else:
                yield (key,), after.get(key, REMOVED)
    elif isinstance(before, list) and isinstance(after, list) and before and after[: len(before)] == before:
        yield from (((number,), item) for number, item in enumerate(after) if number >= len(before))
    elif isinstance(before, list) and after and after == [item for item in before if item in after]:
        yield from (((number,), REMOVED) for number in reversed(range(len(before))) if before[number] not in after)
    elif before != after:
        yield (), after


def _changed(content: Any, path: Path, value: object) -> object:  # noqa: ANN401 - whatever YAML has
    """Return a document with another value at `path`; an emptied collection is null."""
    first, *rest = path
    if content is not None and not isinstance(content, list if isinstance(first, int) else dict):
        raise TypeError("neither a list nor a mapping")
    entries = dict(enumerate(content or ())) if isinstance(first, int) else dict(content or {})
    new = _changed(entries.get(first), rest, value) if rest else value
    if new is REMOVED:
        del entries[first]
    else:
        entries[first] = new
    return (list(entries.values()) if isinstance(first, int) else entries) or None


def _edit(text: str, node: yaml.Node | None, content: Any, path: Path, value: object) -> str:  # noqa: ANN401 - likewise
    """Change the lines of the innermost block that has `path`; what is written in brackets is written anew."""
    first, *rest = path
    if node is None:
        return _with_last_line(text) + _block(_lines(_changed(None, path, value), len(path)), 0, _newline(text))
    entries = _entries(node)
    key, held = entries.get(first, (None, None))
    if held is None:
        new = _changed(None, rest, value) if rest else value
        item: object = [new] if isinstance(node, yaml.SequenceNode) else {first: new}
        return _inserted(text, node, _lines(item, len(path)))
    if rest and _is_block(held):
        return _edit(text, held, content[first], rest, value)
    if rest and "#" in text[held.start_mark.index : held.end_mark.index]:
        raise ValueError("its comments would be lost")
    new = _changed(content[first], rest, value) if rest else value
    start = key.start_mark.index if key else text.rindex("-", 0, held.start_mark.index)
    begin = text.rfind("\n", 0, start) + 1
    is_replaced = new is not REMOVED and key
    if text[begin:start].strip(_DASHES if is_replaced else None):
        raise ValueError("another entry begins in its line")
    if key and is_replaced:
        return _replaced(text, key, held, new, len(rest))
    end = max(_end(text, held), key.end_mark.index if key else start)
    behind = _line_end(text, end)
    item_lines = [] if new is REMOVED else _lines([new])
    if item_lines and not _is_block(held):
        item_lines[0] += text[end:behind].rstrip()
    return text[:begin] + _block(item_lines, start - begin, _newline(text)) + text[behind:]


def _entries(node: yaml.Node) -> Mapping[str | int, tuple[yaml.Node | None, yaml.Node]]:
    """Return what a block has: by its keys, with the nodes of these, or by index."""
    if isinstance(node, yaml.MappingNode) and _is_block(node):
        return {key.value: (key, value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode) and _is_block(node):
        return {number: (None, item) for number, item in enumerate(node.value)}
    raise ValueError("no block")


def _is_block(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and not node.flow_style and bool(node.value)


def _end(text: str, node: yaml.Node) -> int:
    """Return where what a node says ends: a block's own end comes only after the comments behind it."""
    if _is_block(node):
        last = node.value[-1]
        return max(_end(text, each) for each in (last if isinstance(last, tuple) else (last,)))
    start, end = node.start_mark.index, node.end_mark.index
    return start + len(text[start:end].rstrip())


def _line_end(text: str, index: int) -> int:
    """Return where the line after that of `index` begins."""
    return found + 1 if (found := text.find("\n", index)) >= 0 else len(text)


def _inserted(text: str, node: yaml.Node, lines: Sequence[str]) -> str:
    """Return a text with more lines behind the last entry of a block."""
    first = node.value[0]
    indent = first[0].start_mark.column if isinstance(first, tuple) else node.start_mark.column
    last = node.value[-1]
    end = max(_end(text, node), last[0].end_mark.index if isinstance(last, tuple) else 0)
    place = _line_end(text, end)
    return _with_last_line(text[:place]) + _block(lines, indent, _newline(text)) + text[place:]


def _replaced(text: str, key: yaml.Node, held: yaml.Node, value: object, blocks: int) -> str:
    """Return a text with another value of a key; a comment behind the key, or behind a value in its line, stays."""
    found = _COLON.match(text, key.end_mark.index)
    if not found:
        raise ValueError("no colon behind the key")
    colon, start, end = found.end(), max(held.start_mark.index, found.end()), _end(text, held)
    newline = _newline(text)
    if _is_block(held):
        start = colon
        comment = text[colon : _line_end(text, colon)].rstrip("\r\n")
    else:
        end = max(start, end)
        comment = text[end : _line_end(text, end)].rstrip("\r\n")
    rest = _line_end(text, end)
    ending = text[rest - 1 : rest] and (newline if text[rest - 1] == "\n" else "")
    is_in_brackets = isinstance(held, yaml.SequenceNode) and held.flow_style and isinstance(value, list)
    if _is_flat(value) and (is_in_brackets or not (blocks and value)):
        gap = text[colon:start] if not _is_block(held) and start > colon else " "
        return f"{text[:colon]}{gap}{_inline(value)}{comment}{ending}{text[rest:]}"
    indent = key.start_mark.column + _STEP
    return f"{text[:colon]}{comment}{newline}{_block(_lines(value, blocks), indent, newline)}{text[rest:]}"


def _block(lines: Sequence[str], indent: int, newline: str) -> str:
    return "".join(f"{' ' * indent}{line}{newline}" for line in lines)


def _with_last_line(text: str) -> str:
    """Return a text to which a line can be added."""
    return text if not text or text.endswith("\n") else f"{text}{_newline(text)}"


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _lines(value: Any, blocks: int = 1) -> list[str]:  # noqa: ANN401 - whatever a value may be
    """Write a collection as a block: parts without a collection in one line each, unless they are of outer `blocks`."""
    return [*_written(value, blocks)]


def _written(value: Any, blocks: int) -> Iterator[str]:  # noqa: ANN401 - likewise
    if isinstance(value, Mapping):
        for key, each in value.items():
            if _is_flat(each) and not (blocks > 1 and each):
                yield f"{_inline(key)}: {_inline(each)}"
            else:
                yield f"{_inline(key)}:"
                yield from (f"{' ' * _STEP}{line}" for line in _written(each, blocks - 1))
        return
    for item in value:
        lines = [*_written(item, 1)] if isinstance(item, Mapping) and item else [_inline(item)]
        yield from (f"{' ' if number else '-'} {line}" for number, line in enumerate(lines))


def _is_flat(value: object) -> bool:
    """Return whether a value is written in one line: a scalar, or a collection of scalars."""
    if isinstance(value, Mapping):
        return not any(isinstance(each, Mapping | list) for each in value.values())
    return not isinstance(value, list) or not any(isinstance(each, Mapping | list) for each in value)


def _inline(value: object) -> str:
    """Write a value in one line."""
    if isinstance(value, str) and not value.isprintable():
        return json.dumps(value, ensure_ascii=False)
    dumped = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False)
    return dumped.removesuffix("...\n").strip()
