"""Server-sent events read plainly, as the standard has them."""

from __future__ import annotations


def plain(body: bytes) -> list[tuple[str, str, str]]:
    """(event, data, id) of each event, as the standard has it."""
    found = []
    for block in body.decode().split("\n\n"):
        fields: dict[str, list[str]] = {}
        for line in block.split("\n"):
            if line and not line.startswith(":"):
                name, _, value = line.partition(":")
                fields.setdefault(name, []).append(value.removeprefix(" "))
        if "data" in fields:
            found.append((fields["event"][0], "\n".join(fields["data"]), fields["id"][0]))
    return found


def joined(events: list[tuple[str, str, str]]) -> str:
    return "".join(data for event, data, _ in events if event == "output")
