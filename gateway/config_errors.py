"""Says where in polywire.yaml a setting is wrong and what is allowed there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
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


@dataclass(frozen=True, slots=True)
class Sources:
    """What the settings were read from: the file's text and name, and the environment, which goes before it."""

    text: str
    file: str
    environment: Mapping[str, str]

    def where(self, place: tuple[Any, ...]) -> str:
        """Who said what stands at `place`."""
        parts = [str(part).upper() for part in place]
        for length in range(len(parts), 0, -1):
            if self.environment.get(variable := "__".join(["POLYWIRE", *parts[:length]])):
                return variable
        line = line_of(self.text, place)
        return f"{self.file}, line {line}" if line else self.file


def explain(problems: Iterable[Any], sources: Sources, sections: Mapping[str, type[BaseModel]]) -> str:
    """A sentence for each place that pydantic has a problem with. `sections[""]` is the model of the whole file."""
    places: dict[tuple[Any, ...], Any] = {}
    for problem in problems:
        # Where several types are allowed, pydantic names each that did not fit; the first is the one that users write.
        place = tuple(part for part in problem["loc"] if not str(part).startswith("literal["))
        places.setdefault(place, problem)
    return "\n".join(_sentence(place, problem, sources, sections) for place, problem in places.items())


def _sentence(place: tuple[Any, ...], problem: Any, sources: Sources, sections: Mapping[str, type[BaseModel]]) -> str:
    field = f"{'.'.join(str(part) for part in place)}: " if place else ""
    message = f"{sources.where(place)}: {field}{problem['msg'].removeprefix('Value error, ')}"
    if problem["type"] == "extra_forbidden":
        allowed = _allowed(place, sections)
        meant = get_close_matches(str(place[-1]), allowed, 1) if place else []
        message += f"; did you mean {meant[0]!r}?" if meant else ""
        message += f" (allowed: {', '.join(allowed)})"
    return message


def _allowed(location: tuple[Any, ...], sections: Mapping[str, type[BaseModel]]) -> list[str]:
    model = sections.get(str(location[0]), sections[""]) if len(location) > 1 else sections[""]
    return sorted(model.model_fields)


def refuse_doubles(text: str, source: str) -> None:
    """Raises ConfigError for a key that comes twice in one mapping: YAML's reader would silently drop the first."""
    nodes: list[yaml.Node | None] = [yaml.compose(text)]
    # An alias is the node that it names, which may hold it.
    walked: set[int] = set()
    while nodes:
        node = nodes.pop()
        if id(node) in walked:
            continue
        walked.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen:
                    raise ConfigError(f"{source}, line {key.start_mark.line + 1}: {key.value!r} is here a second time.")
                seen.add(key.value)
                nodes.append(value)


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
