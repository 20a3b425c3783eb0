"""YAML that is read by the parser in C, which ends the whole process where a text is nested too deeply.

So the depth is counted first, by the parser's events, which need no stack. Not here: manifests and kubeconfigs, which
are built from those events (`kubernetes.parsing.documents`).
"""

from __future__ import annotations

import yaml

from locallb.model.texts import DEEPEST


def load_yaml(text: str | bytes, loader: type[yaml.CSafeLoader]) -> object:
    """Read one document.

    Raises:
        ValueError: if it is nested too deeply, or has an odd value.
        yaml.YAMLError: if it is no YAML.

    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise ValueError(f"line {line}: it is nested deeper than {DEEPEST}")
    return yaml.load(text, loader)  # noqa: S506 - safe loaders only
