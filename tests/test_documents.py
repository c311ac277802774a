"""What README.md and docs/ say is so: links lead somewhere, examples run, tables and code are those of the product."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import httpx
import pytest
import yaml
from pydantic import AliasChoices

import wires
from adapters import build
from gateway.catalog import Gateway
from gateway.config import ProviderRow, Settings
from gateway.errors import Truncated, UpstreamError
from gateway.events import (
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from gateway.request import ChatRequest, Role, Sampling, text_message
from stores import open_store
from tests.conftest import scripted_config
from tests.contract.wire_entry import WireEntry
from tests.contract.wires import ENTRIES
from tests.javascript import FOLDER, install
from tests.running import ROOT, Service
from tests.upstreams.byte_server import Answer, ByteServer

PAGES = sorted(path for pattern in ("*.md", "docs/*.md", "deploy/*.md", "adapters/*.md") for path in ROOT.glob(pattern))
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
RUNNERS = {
    "python": [sys.executable, "-"],
    "bash": ["bash", "-euo", "pipefail"],
    "js": ["node", "--input-type=module", "-"],
}


def blocks(path: Path, *languages: str) -> Iterator[tuple[str, str]]:
    """The page's pieces of code: (language, text)."""
    for found in BLOCK.finditer(path.read_text("utf-8")):
        if found[1] in languages:
            yield found[1], found[2]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text("utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file) if file else page
        assert linked.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.+)$", linked.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}, target


EXAMPLES = [
    pytest.param(language, code, id=f"{name(page)}-{number}-{language}")
    for page in (ROOT / "README.md", ROOT / "docs" / "openai.md", ROOT / "docs" / "opensearch.md")
    for number, (language, code) in enumerate(blocks(page, *RUNNERS), 1)
    if re.search(r"127\.0\.0\.1:(3000|9400)", code) and not re.search(r"<\w+>", code)
]
"""What asks the running service, and has no place that the reader fills in."""


@pytest.mark.parametrize(("language", "code"), EXAMPLES)
def test_an_example_runs_as_it_is_written(service: Service, tmp_path: Path, language: str, code: str) -> None:
    if language == "js":
        install()
    code = code.replace("127.0.0.1:3000", f"127.0.0.1:{service.port}")
    code = code.replace("127.0.0.1:9400", f"127.0.0.1:{service.grpc_port}")
    done = subprocess.run(
        RUNNERS[language],
        input=code,
        cwd=FOLDER if language == "js" else tmp_path,
        env={**os.environ, "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Hello" in done.stdout or any(file.stat().st_size > 1_000 for file in tmp_path.iterdir()), done


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page, "yaml"))], ids=name)
def test_examples_of_the_configuration_are_taken(page: Path) -> None:
    for _, code in blocks(page, "yaml"):
        given = yaml.safe_load(code)
        if "providers" in given:
            models = given.setdefault("models", [])
            settings = Settings(**given)
            assert len(settings.models) == len(models)


def test_every_variable_is_named_and_every_named_one_is_read() -> None:
    own = {
        str(choice)
        for field in Settings.model_fields.values()
        if isinstance(field.validation_alias, AliasChoices)
        for choice in field.validation_alias.choices
        if re.fullmatch("POLYWIRE_[A-Z]+(_[A-Z]+)*", str(choice))
    } | {"POLYWIRE_CONFIG"}
    named = set().union(*(re.findall(r"POLYWIRE_[A-Z_]+[A-Z]", page.read_text("utf-8")) for page in PAGES))
    assert {variable for variable in named if "__" not in variable} == own
    for variable in named - own - {"POLYWIRE__SECTION__FIELD"}:
        section, *fields = variable.lower().split("__")[1:]
        values = getattr(Settings(), {"lambda": "function_url"}.get(section, section))
        assert all(hasattr(values, field) for field in fields), variable


def test_every_verb_that_is_named_is_in_the_makefile() -> None:
    verbs = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in PAGES:
        # In code only: elsewhere one may well make something.
        code = " ".join(re.findall(r"`+[^`]+`+", page.read_text("utf-8")))
        assert set(re.findall(r"\bmake ([a-z]+)", code)) <= verbs, page


EVENTS: dict[str, list[StreamEvent]] = {
    "Started": [Started("1", "default", 1)],
    "TextDelta": [TextDelta("Hi")],
    "ReasoningDelta": [ReasoningDelta("Hm")],
    "ToolCall…": [ToolCallStart(0, "c1", "now"), ToolCallDelta(0, "{}")],
    "Finished": [Finished(FinishReason.STOP, Usage(3, 5))],
}
FAILED = Failed(UpstreamError("It broke."))


def table() -> dict[str, list[str]]:
    """The cells of the architecture page's table, by wire."""
    rows: dict[str, list[str]] = {}
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    for line in text.partition("| wire | Started")[2].partition("\n\n")[0].splitlines()[2:]:
        wire, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
        rows |= dict.fromkeys(wire.split(", "), cells)
    return rows


def test_every_wire_has_its_row_of_frames() -> None:
    assert table().keys() == {entry.name for entry in ENTRIES}


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.encode], ids=lambda entry: entry.name)
def test_each_event_has_the_frames_of_the_table(entry: WireEntry) -> None:
    assert entry.encode is not None
    cells = table()[entry.name]
    so_far: list[StreamEvent] = []
    bodies = [entry.encode(so_far).body]
    for events in EVENTS.values():
        so_far += events
        bodies.append(entry.encode(so_far).body)
    frames = [after.removeprefix(before) for before, after in pairwise(bodies)]
    begun, failed = entry.encode(so_far[:2]), entry.encode([*so_far[:2], FAILED])
    frames.append(failed.body.removeprefix(begun.body))
    for cell, frame in zip(cells, frames, strict=True):
        assert cell.startswith("—") == (not frame), (cell, frame)
        for snippet in re.findall("`([^`]+)`", cell):
            assert snippet.encode() in frame, (cell, frame)
    assert failed.whole == ("broken body" not in cells[-1])


@pytest.mark.parametrize(("page", "file"), [("docs/adding-a-wire.md", "wires"), ("adapters/README.md", "adapters")])
def test_whole_modules_of_the_documentation_keep_the_rules(page: str, file: str) -> None:
    _, code = next(blocks(ROOT / page, "python"))
    for verb in (["check"], ["format", "--check"]):
        command = [str(Path(sys.executable).with_name("ruff")), *verb, "--stdin-filename", f"{file}/ollama.py", "-"]
        done = subprocess.run(command, cwd=ROOT, input=code, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def module_of(page: Path, name: str) -> ModuleType:
    """The first piece of Python on a page, as a module."""
    module = ModuleType(name)
    _, code = next(blocks(page, "python"))
    exec(compile(code, page, "exec"), module.__dict__)  # noqa: S102 - our own documentation
    return module


async def test_the_wire_of_the_documentation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documented_wire = module_of(ROOT / "docs" / "adding-a-wire.md", "wires.ollama")
    monkeypatch.setattr(wires, "WIRES", (documented_wire.WIRE, *wires.WIRES))
    monkeypatch.setattr(wires, "ROUTERS", (documented_wire.router, *wires.ROUTERS))
    settings = Settings(**scripted_config(store=f"sqlite:///{tmp_path / 'polywire.db'}", grpc_port=0))
    store = open_store(settings.store)
    app = wires.create_app(Gateway(settings, build, store), store)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client,
    ):
        answers = {}
        for model in ("reasoning", "fails-midway", "nope"):
            answer = await client.post("/api/generate", json={"model": model, "prompt": "hi"})
            answers[model] = (answer.status_code, [json.loads(line) for line in answer.text.splitlines()])
    assert [line["response"] for line in answers["reasoning"][1]] == ["", "42", ""]
    assert answers["reasoning"][1][-1]["done_reason"] == "stop"
    assert answers["fails-midway"][1][-1] == {"error": "It broke."}
    assert answers["nope"][0] == 404
    assert "nope" in answers["nope"][1][0]["error"]


LINES = [
    b'{"model":"m","response":"Hel","done":false}\n{"model":"m","resp',
    b'onse":"lo","done":false}\n',
    b'{"model":"m","response":"","done":true,"done_reason":"length","prompt_eval_count":2,"eval_count":3}\n',
]


async def test_the_provider_of_the_documentation_works() -> None:
    module = module_of(ROOT / "adapters" / "README.md", "adapters.ollama")
    whole, cut, broken = Answer(LINES), Answer(LINES[:2]), Answer([LINES[0], b'onse":"lo","error":"It broke."}\n'])
    async with ByteServer({"/api/generate": [whole, cut, broken]}) as server:
        row = ProviderRow(name="ollama", type="openai", base_url=server.url)
        async with aclosing(module.Ollama(row, Settings())) as provider:
            request = ChatRequest("m", (text_message(Role.USER, "hi"),), sampling=Sampling(max_tokens=3))
            events = [event async for event in provider.stream(request)]
            with pytest.raises(Truncated):
                [event async for event in provider.stream(request)]
            with pytest.raises(UpstreamError, match="It broke"):
                [event async for event in provider.stream(request)]
        assert server.requests[0].json == {"model": "m", "prompt": "hi", "options": {"num_predict": 3}}
    assert events == [TextDelta("Hel"), TextDelta("lo"), Finished(FinishReason.LENGTH, Usage(2, 3))]
