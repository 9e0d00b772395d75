"""Coverage-guided fuzzing of every reader of untrusted files and of the C interface.

    python fuzz/run.py --seconds 60            every target, one after the other
    python fuzz/run.py tflite --seconds 600    one target

A target in Python (needs atheris) is a file in fuzz/targets with a function `read(data, folder)`:
it gives the bytes to a reader of deltakwt, which must either succeed or raise one `DeltakwtError`
with a message of one line. A target in C (needs clang and its runtime) is a file in fuzz/native.

An input that fails is a finding. It is written to build/fuzz, and should be added to
fuzz/corpus/TARGET once it is fixed. Inputs that reach new code are kept in build/fuzz/grown, where
the next run continues; executions are added up in build/fuzz/totals.json. `replay` runs the inputs
of the corpus without atheris.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import libfuzzer

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
FINDINGS = HERE.parent / "build" / "fuzz"
MAX_BYTES = 1 << 14
MAX_NUMBERS = 1 << 9  # bytes of an input that a target in C reads as numbers
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


def options_of(name: str, seconds: int) -> list[str]:
    """Return the options of libFuzzer for a target."""
    FINDINGS.mkdir(parents=True, exist_ok=True)
    words = HERE / "dictionaries" / f"{name}.txt"
    longest = MAX_BYTES
    if name in libfuzzer.TARGETS and not words.exists():
        words, longest = HERE / "dictionaries" / "numbers.txt", MAX_NUMBERS
    return [
        f"-max_total_time={seconds}",
        f"-max_len={longest}",
        "-timeout=20",
        "-rss_limit_mb=1024",
        f"-artifact_prefix={FINDINGS}/{name}-",
        "-print_final_stats=1",
        *([f"-dict={words}"] if words.exists() else []),
    ]


def fuzz(name: str, seconds: int, folder: Path, grown: Path) -> None:
    """Fuzz one target in this process, which libFuzzer ends."""
    import atheris

    with atheris.instrument_imports(include=["deltakwt", "tarfile", "json", "http", "urllib"]):
        read = load(name)
        import deltakwt.core.errors  # noqa: F401

    def run_one(data: bytes) -> None:
        check(read, data, folder)

    arguments = [*options_of(name, seconds), str(grown), str(CORPUS / name)]
    atheris.Setup([sys.argv[0], *arguments], run_one)
    atheris.Fuzz()


def run_in_process(name: str, seconds: int, grown: Path | None = None) -> tuple[int, int, str]:
    """Fuzz one target in a new process. Return its exit code, executions and log."""
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        grown = grown or Path(folder) / "grown"
        grown.mkdir(parents=True, exist_ok=True)
        if name in libfuzzer.TARGETS:
            program = [str(libfuzzer.program(name)), *options_of(name, seconds)]
            command = [*program, str(grown), str(CORPUS / name)]
        else:
            inside = Path(folder) / "files"
            inside.mkdir()
            command = [sys.executable, __file__, name, f"--seconds={seconds}"]
            command += [f"--folder={inside}", f"--grown={grown}"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    log = done.stdout + done.stderr
    found = re.search(r"stat::number_of_executed_units: (\d+)", log)
    return done.returncode, int(found[1]) if found else 0, log


def add_to_totals(name: str, executions: int) -> int:
    """Add to the executions of a target over all runs, and return them."""
    path = FINDINGS / "totals.json"
    totals: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
    totals[name] = totals.get(name, 0) + executions
    path.write_text(json.dumps(totals, indent=2, sort_keys=True) + "\n")
    return totals[name]


def choose(names: list[str]) -> list[str]:
    """Return the targets to run, and build those in C."""
    chosen = names or [*TARGETS, *libfuzzer.TARGETS]
    if set(chosen) & set(libfuzzer.TARGETS):
        if reason := libfuzzer.missing():
            print(f"the targets in C are left out: {reason}")
            return [name for name in chosen if name not in libfuzzer.TARGETS]
        libfuzzer.build()
    return chosen


def main() -> int:
    """Run the targets of the command line; the exit code is 1 if anything was found."""
    known = [*TARGETS, *libfuzzer.TARGETS]
    parser = argparse.ArgumentParser(description="Fuzz the readers of deltakwt.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(known))
    parser.add_argument("--seconds", type=int, default=60, help="time for each target")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--grown", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.targets) - set(known):
        parser.error(f"unknown target {min(unknown)}; there are {', '.join(known)}")
    if options.folder:
        fuzz(options.targets[0], options.seconds, options.folder, options.grown)
    failed = 0
    for name in choose(options.targets):
        code, executions, log = run_in_process(name, options.seconds, FINDINGS / "grown" / name)
        total = add_to_totals(name, executions)
        result = "FINDING" if code else "ok"
        print(f"{name:12} {executions:>10,} executions, {total:,} in all: {result}", flush=True)
        if code:
            failed = 1
            print(log[-4000:])
    return failed


if __name__ == "__main__":
    sys.exit(main())
