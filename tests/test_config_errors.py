"""A wrong configuration ends the start with a sentence: where it is wrong and what is allowed there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config import Settings
from gateway.config_errors import ConfigError
from tests.running import ROOT

WRONG = {
    "providers:\n  - {name: x, type: opnai}\n": "line 2: providers.0.type: Input should be 'local', 'openai', ",
    "providers:\n  - {name: x, type: openai, base_ur: a}\n": "line 2: providers.0.base_ur: Extra inputs are not"
    " permitted; did you mean 'base_url'? (allowed: api_key_env, base_url, ",
    "providers:\n  - {name: x, type: openai, base_url: 'ftp://user:pa55word@host/v1'}\n": "line 2:"
    " providers.0.base_url: it must begin with http:// or",
    "providers: [{name: x, type: openai}]\nmodels:\n  - {id: a, provider: x, upstream: z}\n  - id: b{c}\n    provider:"
    " y\n    upstream: z\n": "line 5: models.1.provider: model 'b{c}' names provider 'y'; the providers are x",
    "providers: [{name: x, type: openai}]\n": "file.yaml: models: is missing: without it, models are those of",
    "providers:\n  - {name: x, type: local}\n  - {name: x, type: openai}\n": "line 3: providers.1.name: providers names"
    " 'x' more than once",
    "models:\n  - {id: a, provider: local, upstream: z}\n  - {id: a, provider: local, upstream: y}\n": "line 3:"
    " models.1.id: models names 'a' more than once",
    "providers:\n  - {name: x, type: connector}\n": "line 2: providers.0.type: 'connector' means registered models",
    "store: sqlite:///x.db\nreplicas: 2\n": "line 2: replicas: 2 replicas need a store",
    "limits:\n  streems: 3\n": "line 2: limits.streems: Extra inputs are not permitted; did you mean 'streams'?"
    " (allowed: all_",
    "limits:\n\n  streams: 0\n": "line 3: limits.streams: Input should be greater than 0",
    "workers: 1\nlimits:\n  streams: 3\n  streams: 4\n": "line 4: 'streams' is here a second time",
    "limits: &itself\n  streams: *itself\n": "line 2: limits.streams: Input should be a valid integer",
    "providers:\n  - {name: x\n": "is not valid YAML",
    "- a\n": "must be a mapping",
}


@pytest.mark.parametrize(("text", "sentence"), WRONG.items())
def test_a_wrong_file_is_told_by_its_line_and_what_is_allowed(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Settings.load(file)
    said = str(caught.value)
    assert sentence in said
    assert "literal[" not in said
    assert "pa55word" not in said
    assert said.count("file.yaml") == 1


def test_a_wrong_variable_is_told_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("limits:\n  streams: 3\n")
    monkeypatch.setenv("POLYWIRE__LIMITS__STREAMS", "0")
    with pytest.raises(ConfigError, match=r"^POLYWIRE__LIMITS__STREAMS: limits.streams: Input should be greater"):
        Settings.load(file)


def test_the_start_ends_with_the_sentence_alone(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("providers:\n  - {name: x, type: opnai}\n")
    command = [sys.executable, "-m", "bentoml", "serve", "service:Polywire", "--port", "0"]
    environment = {**os.environ, "POLYWIRE_CONFIG": str(file), "BENTOML_HOME": str(tmp_path / "bentoml")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"{file}, line 2: providers.0.type: Input should be" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
