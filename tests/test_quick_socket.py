"""Messages on a WebSocket are the bytes that the `websockets` package would write."""

from __future__ import annotations

import pytest
from websockets.frames import Frame, Opcode

from wires.quick_socket import BINARY, TEXT, head


@pytest.mark.parametrize("size", [0, 1, 125, 126, 960, 65_535, 65_536, 100_000])
@pytest.mark.parametrize(("first", "opcode"), [(TEXT, Opcode.TEXT), (BINARY, Opcode.BINARY)])
def test_a_message_is_one_whole_frame(size: int, first: int, opcode: Opcode) -> None:
    data = b"x" * size
    assert head(first, size) + data == Frame(opcode, data).serialize(mask=False)
