"""Looks the locked packages up among the known vulnerabilities, with the pip-audit that is named first.

Exits 1 when one is found. What could not be looked up is told as that: pip-audit itself calls a package that its
database does not know free of vulnerabilities, and every package where the database cannot be reached.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

COMMAND = ("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json", "-r")
LOCK = "requirements.lock"


def main() -> int:
    """Run it and say what it found."""
    done = subprocess.run([sys.argv[1], *COMMAND, LOCK], stdout=subprocess.PIPE, check=False)  # noqa: S603 - the Makefile names it
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        say("NOT AUDITED: pip-audit could not look the packages up; its message stands above.")
        return 0
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    found = [(package, each) for package in packages for each in package.get("vulns", ())]
    for package, each in found:
        fixed = ", ".join(each["fix_versions"]) or "none"
        say(f"{package['name']} {package['version']}: {each['id']}, fixed in {fixed}")
    if unknown:
        say(f"NOT AUDITED: {len(unknown)} of {len(packages)} packages are not in the database that pip-audit reached.")
    say(f"{len(found)} known vulnerabilities in the {len(packages) - len(unknown)} packages that were looked up.")
    return 1 if found else 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
