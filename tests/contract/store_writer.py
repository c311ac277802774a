"""Another process at the same store: writes or signals as its arguments say, then leaves or is killed."""

from __future__ import annotations

import asyncio
import sys

from stores import open_store


async def main(url: str, verb: str, name: str) -> None:
    store = open_store(url)
    match verb:
        case "append":
            for number in range(50):
                await store.append(name, [f"{number}".encode()], last=number == 49)
        case "signal":
            await store.signal(name, b"hello")
        case "wait":
            await store.append(name, [b"begun"])
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await asyncio.Event().wait()
        case "count":
            for _ in range(50):
                while (document := await store.get("count", name)) is not None:
                    value = str(int(document.value) + 1).encode()
                    if await store.replace("count", name, value, version=document.version):
                        break
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
