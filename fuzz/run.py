"""Coverage-guided fuzzing of every reader of untrusted files.

    python fuzz/run.py --seconds 60            every target, one after the other
    python fuzz/run.py tflite --seconds 600    one target

Needs atheris (pip install atheris). A target is a file in fuzz/targets with a function
`read(data, folder)`: it gives the bytes to a reader of deltakwt, which must either succeed or raise
one `DeltakwtError` with a message of one line. Anything else is a finding: its input is written to
build/fuzz, and should be added to fuzz/corpus/TARGET once it is fixed. `replay` runs the inputs of
the corpus without atheris.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
FINDINGS = HERE.parent / "build" / "fuzz"
MAX_BYTES = 1 << 14
TARGETS = sorted(path.stem for path in (HERE / "targets").glob("*.py"))

Read = Callable[[bytes, Path], object]


def load(name: str) -> Read:
    """Return the `read` function of a target."""
    spec = importlib.util.spec_from_file_location(f"fuzz_{name}", HERE / "targets" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    read: Read = module.read
    return read


def check(read: Read, data: bytes, folder: Path) -> None:
    """Run one input. Only success, or one line of `DeltakwtError`, is accepted."""
    from deltakwt.core.errors import DeltakwtError

    try:
        read(data, folder)
    except DeltakwtError as error:
        message = str(error)
        assert len(message.splitlines()) == 1, f"not one line: {message!r}"
        assert len(message) < 2000, f"too long: {message[:200]!r}"


def inputs(name: str) -> Iterator[Path]:
    """Yield the files of a target's corpus."""
    yield from sorted((CORPUS / name).iterdir())


def replay(name: str, folder: Path) -> int:
    """Run the corpus of a target and return the number of inputs."""
    read, count = load(name), 0
    for path in inputs(name):
        check(read, path.read_bytes(), folder)
        count += 1
    return count


def scratch() -> str | None:
    """Return a folder in memory for temporary files, if there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def fuzz(name: str, seconds: int, folder: Path) -> None:
    """Fuzz one target in this process, which libFuzzer ends."""
    import atheris

    with atheris.instrument_imports(include=["deltakwt", "tarfile", "json"]):
        read = load(name)
        import deltakwt.core.errors  # noqa: F401

    def run_one(data: bytes) -> None:
        check(read, data, folder)

    new = folder / "corpus"
    new.mkdir(exist_ok=True)
    FINDINGS.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MAX_BYTES}",
        "-timeout=20",
        "-rss_limit_mb=1024",
        f"-artifact_prefix={FINDINGS}/{name}-",
        "-print_final_stats=1",
    ]
    words = HERE / "dictionaries" / f"{name}.txt"
    options += [f"-dict={words}"] if words.exists() else []
    atheris.Setup([sys.argv[0], *options, str(new), str(CORPUS / name)], run_one)
    atheris.Fuzz()


def run_in_process(name: str, seconds: int) -> tuple[int, int, str]:
    """Fuzz one target in a new process. Return its exit code, executions and log."""
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        command = [sys.executable, __file__, name, f"--seconds={seconds}", f"--folder={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    log = done.stdout + done.stderr
    found = re.search(r"stat::number_of_executed_units: (\d+)", log)
    return done.returncode, int(found[1]) if found else 0, log


def main() -> int:
    """Run the targets of the command line; the exit code is 1 if anything was found."""
    parser = argparse.ArgumentParser(description="Fuzz the readers of deltakwt.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=60, help="time for each target")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"unknown target {min(unknown)}; there are {', '.join(TARGETS)}")
    if options.folder:
        fuzz(options.targets[0], options.seconds, options.folder)
    failed = 0
    for name in options.targets or TARGETS:
        code, executions, log = run_in_process(name, options.seconds)
        print(f"{name:12} {executions:>10,} executions {'FINDING' if code else 'ok'}", flush=True)
        if code:
            failed = 1
            print(log[-4000:])
    return failed


if __name__ == "__main__":
    sys.exit(main())
