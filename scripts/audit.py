"""Look for known vulnerabilities in the packages of requirements-dev.txt, with pip-audit.

Where pip-audit cannot reach its data, say so in one line and succeed. It never takes longer than
two minutes. Usage: python scripts/audit.py [REQUIREMENTS]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent
PROBE = "pip==24.0\n"  # an old release with a published vulnerability
PROBE_SECONDS, SECONDS = 15, 100


def audit(requirements: Path, seconds: float, *options: str) -> list[dict[str, Any]] | str:
    """Return what pip-audit says about each package, or why it says nothing."""
    command = [sys.executable, "-m", "pip_audit", "-r", str(requirements), "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off", "--timeout", "5", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return f"no answer in {seconds:g} s"
    except (ValueError, KeyError):
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"exit code {done.returncode}"
    return found


def reachable() -> str | None:
    """Return None if the data can be reached, or else the reason."""
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.txt"
        probe.write_text(PROBE)
        found = audit(probe, PROBE_SECONDS, "--no-deps")
    if isinstance(found, str):
        return found
    return None if any(one.get("vulns") for one in found) else "its data cannot be reached"


def main() -> int:
    requirements = Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT / "requirements-dev.txt"
    if reason := reachable():
        print(f"pip-audit: skipped: {reason}")
        return 0
    found = audit(requirements, SECONDS, "--require-hashes")
    if isinstance(found, str):
        print(f"pip-audit: skipped: {found}")
        return 0
    for package in found:
        for flaw in package.get("vulns", []):
            fixed = ", ".join(flaw["fix_versions"]) or "no release"
            print(f"{package['name']} {package['version']}: {flaw['id']}, fixed in {fixed}")
    bad = sum(bool(package.get("vulns")) for package in found)
    print(f"pip-audit: {len(found)} packages, {bad} with known vulnerabilities")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
