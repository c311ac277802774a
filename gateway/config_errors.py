"""Says where in polywire.yaml a setting is wrong and what is allowed there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Never

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError


class ConfigError(Exception):
    """polywire.yaml or the environment is wrong; the message says where and what is allowed."""


def refuse_at(place: tuple[str | int, ...], sentence: str) -> Never:
    """Raises what a validator of the whole file raises for one place in it, which would else be named no place."""
    # Not as pydantic's template: a brace in a name of the file would be taken for a field of it.
    error = PydanticCustomError("value_error", "{sentence}", {"sentence": sentence})
    raise ValidationError.from_exception_data("Settings", [InitErrorDetails(type=error, loc=place, input=None)])


def explain(problems: Iterable[Any], text: str, source: str, sections: Mapping[str, type[BaseModel]]) -> str:
    """A sentence for each place that pydantic has a problem with. `sections[""]` is the model of the whole file."""
    places: dict[tuple[Any, ...], Any] = {}
    for problem in problems:
        # Where several types are allowed, pydantic names each that did not fit; the first is the one that users write.
        place = tuple(part for part in problem["loc"] if not str(part).startswith("literal["))
        places.setdefault(place, problem)
    return "\n".join(_sentence(place, problem, text, source, sections) for place, problem in places.items())


def _sentence(
    place: tuple[Any, ...], problem: Any, text: str, source: str, sections: Mapping[str, type[BaseModel]]
) -> str:
    line = line_of(text, place)
    where = f"{source}, line {line}" if line else source
    field = f"{'.'.join(str(part) for part in place)}: " if place else ""
    message = f"{where}: {field}{problem['msg'].removeprefix('Value error, ')}"
    if problem["type"] == "extra_forbidden":
        message += f" (allowed: {', '.join(_allowed(place, sections))})"
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
