"""A deployment that says it has several replicas must name a store that they share."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import Settings
from gateway.config_errors import ConfigError

PASSWORD = "open-sesame"


def test_replicas_with_a_file_as_their_store_do_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "polywire.yaml"
    path.write_text("replicas: 2\n")
    with pytest.raises(ConfigError, match="POLYWIRE_STORE") as caught:
        Settings.load(path)
    assert "2 replicas" in str(caught.value)
    monkeypatch.setenv("POLYWIRE_STORE", f"redis://:{PASSWORD}@redis:6379/0")
    settings = Settings.load(path)
    assert (settings.replicas, settings.store) == (2, f"redis://:{PASSWORD}@redis:6379/0")
    assert PASSWORD not in repr(settings) + str(settings)
