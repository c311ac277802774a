"""Says where in polywire.yaml a setting is wrong and what is allowed there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel


class ConfigError(Exception):
    """polywire.yaml or the environment is wrong; the message says where and what is allowed."""


def explain(problem: Any, text: str, source: str, sections: Mapping[str, type[BaseModel]]) -> str:
    """One sentence for one of pydantic's problems. `sections[""]` is the model of the whole file."""
    location = tuple(problem["loc"])
    line = line_of(text, location)
    where = f"{source}, line {line}" if line else source
    field = ".".join(str(part) for part in location) or "settings"
    message = f"{where}: {field}: {problem['msg']}"
    if problem["type"] == "extra_forbidden":
        message += f" (allowed: {', '.join(_allowed(location, sections))})"
    return message


def _allowed(location: tuple[Any, ...], sections: Mapping[str, type[BaseModel]]) -> list[str]:
    model = sections.get(str(location[0]), sections[""]) if len(location) > 1 else sections[""]
    return sorted(model.model_fields)


def line_of(text: str, location: tuple[Any, ...]) -> int | None:
    """The line (from 1) of the YAML node at `location`, or of the nearest node above it."""
    node = yaml.compose(text) if text else None
    line = None
    for part in location:
        if isinstance(node, yaml.MappingNode):
            pairs = {key.value: (key, value) for key, value in node.value}
            if part not in pairs:
                break
            key, node = pairs[part]
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line
