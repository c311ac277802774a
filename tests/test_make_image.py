"""`make image`: which container backend it takes, and what it says when there is none."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.running import ROOT


@dataclass(frozen=True)
class Machine:
    """A machine with nothing but the programs that a test puts there; `calls` is what they were asked to do."""

    programs: Path
    venv: Path
    calls: Path

    def put(self, name: str, script: str, *, folder: Path | None = None) -> None:
        path = (folder or self.programs) / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >> {self.calls}\n{script}\n')
        path.chmod(0o755)

    def make_image(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "--no-print-directory", "image", f"VENV={self.venv}", *arguments],
            cwd=ROOT,
            env={"PATH": str(self.programs)},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    def asked(self, name: str) -> list[str]:
        if not self.calls.exists():
            return []
        return [line for line in self.calls.read_text().splitlines() if line.startswith(f"{name} ")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "programs", tmp_path / "venv", tmp_path / "calls")
    machine.programs.mkdir()
    for name in ("bash", "make", "grep", "mkdir"):
        found = shutil.which(name)
        assert found, f"{name} is not installed"
        (machine.programs / name).symlink_to(found)
    (machine.venv / "bin").mkdir(parents=True)
    for stamp in (".python", ".serve"):
        (machine.venv / stamp).touch()
    machine.put("bentoml", "", folder=machine.venv / "bin")
    return machine


NO_DAEMON = 'if [ "$1" = info ]; then echo "Cannot connect to the Docker daemon." >&2; exit 1; fi'
BUILD = "bentoml build -f build/bentofile.yaml"
CONTAINERIZE = "bentoml containerize polywire:latest --backend"


def test_the_first_backend_that_answers_builds_the_image(machine: Machine) -> None:
    machine.put("docker", 'echo "Docker version 28"')
    machine.put("podman", "")
    assert machine.make_image("TAG=registry.example/polywire:2").returncode == 0
    assert machine.asked("bentoml") == [BUILD, f"{CONTAINERIZE} docker -t registry.example/polywire:2"]


def test_a_docker_without_a_daemon_is_passed_over(machine: Machine) -> None:
    machine.put("docker", NO_DAEMON)
    machine.put("buildah", "")
    assert machine.make_image().returncode == 0
    assert machine.asked("bentoml")[-1] == f"{CONTAINERIZE} buildah -t polywire:latest"


def test_podman_under_the_name_of_docker_is_driven_as_podman(machine: Machine) -> None:
    machine.put("docker", 'echo "podman version 5.4.0"')
    machine.put("podman", "")
    assert machine.make_image().returncode == 0
    assert machine.asked("bentoml")[-1] == f"{CONTAINERIZE} podman -t polywire:latest"


def test_a_named_backend_and_its_options_are_passed_on(machine: Machine) -> None:
    machine.put("docker", 'echo "Docker version 28"')
    machine.put("buildah", "")
    assert machine.make_image("BACKEND=buildah", "IMAGE_OPTIONS=--opt no-cache").returncode == 0
    assert machine.asked("bentoml")[-1] == f"{CONTAINERIZE} buildah -t polywire:latest --opt no-cache"


def test_without_a_backend_nothing_is_built_and_each_lack_is_named(machine: Machine) -> None:
    machine.put("docker", NO_DAEMON)
    refused = machine.make_image()
    assert refused.returncode != 0
    assert "docker is installed but does not answer: Cannot connect to the Docker daemon." in refused.stderr
    assert "podman is not installed" in refused.stderr
    assert "buildah is not installed" in refused.stderr
    assert machine.asked("bentoml") == []


def test_a_failed_build_fails_make(machine: Machine) -> None:
    machine.put("podman", "")
    machine.put("bentoml", '[ "$1" = build ]', folder=machine.venv / "bin")
    assert machine.make_image().returncode != 0
