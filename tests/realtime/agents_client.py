"""A voice agent of openai-agents, run by itself: agents_client.py <ws url> <verb>. Prints what it saw as JSON.

That package takes no websockets 17, so this file runs with its own folder of packages (agents-requirements.txt).
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from agents import function_tool, set_tracing_disabled
from agents.realtime import RealtimeAgent, RealtimeRunner

seen: dict[str, Any] = {"kinds": [], "audio": 0, "errors": [], "cities": [], "history": []}


@function_tool  # type: ignore[untyped-decorator]  # the type checker does not see that package
def get_weather(city: str) -> str:
    """The weather in a city."""
    seen["cities"].append(city)
    return "21 degrees"


def note(event: Any) -> bool:
    """Whether that was the end of what is looked for."""
    seen["kinds"].append(event.type)
    match event.type:
        case "audio":
            seen["audio"] += len(event.audio.data)
        case "error":
            seen["errors"].append(str(event.error))
        case "history_updated":
            seen["history"] = [item.model_dump(mode="json") for item in event.history]
    return bool(event.type == ("tool_end" if sys.argv[2] == "tool" else "agent_end"))


async def main(url: str, verb: str) -> None:
    set_tracing_disabled(True)
    tools: list[Any] = [get_weather] if verb == "tool" else []
    agent: Any = RealtimeAgent(name="Tester", instructions="Be brief.", tools=tools)
    settings: Any = {"url": url, "api_key": "any"}
    async with await RealtimeRunner(agent).run(model_config=settings) as session:
        await session.send_message("one two three")
        async for event in session:
            if note(event):
                break
    print(json.dumps(seen))  # noqa: T201 - its output is its answer


asyncio.run(asyncio.wait_for(main(*sys.argv[1:3]), 20))
