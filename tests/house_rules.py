"""`make check` runs this: rules of the house that no linter knows. Exits 1 and names each file that breaks one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

LONGEST = 300
BANNED_NAMES = re.compile(r"(^|_)(utils?|helpers?|manager|misc|common)(_|\.|$)")
REASONED = re.compile(r"#\s*(?:noqa: [A-Z0-9, ]+|type: ignore\[[a-z, -]+\])\s*(?P<reason>.*)")


PROVIDER_PART = re.compile(
    r"^from adapters\.((?:cog|connector|local|openai|opensearch|replicate|sagemaker)_\w+) import", re.M
)
SHARED_PARTS = frozenset({"replicate_input"})
"""Replicate's inputs are Cog's as well."""


def tracked() -> list[Path]:
    """Every Python file that git knows or would take."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted({Path(line) for line in listing.stdout.splitlines() if Path(line).exists()})


def broken(path: Path) -> list[str]:
    """What is wrong with one file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    faults = []
    if len(lines) > LONGEST:
        faults.append(f"{path}: {len(lines)} lines; split it at {LONGEST}")
    if BANNED_NAMES.search(path.name):
        faults.append(f"{path}: name it for what it holds")
    if text.strip() and not text.lstrip().startswith(('"""', 'r"""', "#!")):
        faults.append(f"{path}: begins without saying what it is for")
    if path.parts[0] == "adapters":
        faults += borrowed(path, text)
    if path.parts[0] != "tests":
        for number, line in enumerate(lines, 1):
            if "noqa" in line or "type: ignore" in line:
                found = REASONED.search(line)
                if not found or not found["reason"].lstrip(" -#"):
                    faults.append(f"{path}:{number}: an ignore without its code and a reason")
    return faults


def borrowed(path: Path, text: str) -> list[str]:
    """Parts of another provider that an adapter imports: `openai_sdk` is for `openai_...` alone."""
    own = path.stem.partition("_")[0]
    parts = (part for part in PROVIDER_PART.findall(text) if part not in SHARED_PARTS)
    return [f"{path}: {part} is another provider's own" for part in parts if part.partition("_")[0] != own]


def unlocked() -> list[str]:
    """Requirements that `make lock` has not seen."""
    locked = Path("requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^[\w.-]+==\S+", Path("requirements.txt").read_text(encoding="utf-8"), re.M)
    return [f"requirements.lock: lacks {pin}; run make lock" for pin in pins if f"{pin.lower()} \\" not in locked]


def unlisted() -> list[str]:
    """Locked packages whose licence is not listed."""
    listed = Path("docs/licences.md").read_text(encoding="utf-8")
    pins = re.findall(r"^([\w.-]+)==([^ ;\\]+)", Path("requirements.lock").read_text(encoding="utf-8"), re.M)
    missing = (name for name, version in pins if f"| {name} | {version} |" not in listed)
    return [f"docs/licences.md: lacks {name}; run make licences" for name in missing]


if __name__ == "__main__":
    found = [fault for path in tracked() for fault in broken(path)] + unlocked() + unlisted()
    print("\n".join(found) or "house rules: kept")  # noqa: T201 - a command's output
    sys.exit(bool(found))
