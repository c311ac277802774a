"""A Cog model without weights: it writes its prompt back, character by character, or what the prompt orders."""

import time
from collections.abc import Iterator

from cog import BaseRunner, Input, current_scope, streaming  # type: ignore[import-untyped]  # cog ships no types


class Runner(BaseRunner):  # type: ignore[misc]  # as above
    """`fail` breaks after one piece, `slow` goes on for a minute, `silent` never begins."""

    @streaming  # type: ignore[untyped-decorator]  # as above
    def run(
        self,
        prompt: str = Input(description="What to write back"),
        system_prompt: str = Input(description="Written first", default=""),
        max_tokens: int = Input(description="At most this many characters", default=1000),
    ) -> Iterator[str]:
        if prompt == "silent":
            for _ in range(600):  # one long sleep could not be interrupted
                time.sleep(0.1)
        text = system_prompt + ("tick " * 600 if prompt == "slow" else prompt)
        for count, character in enumerate(text[:max_tokens], start=1):
            yield character
            if prompt == "fail":
                raise RuntimeError("boom")
            if prompt == "slow":
                time.sleep(0.1)
            current_scope().record_metric("output_token_count", count)
