"""The fixed-point engine on other targets: test_fixed.c prints the same checksum on each."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "native"
# Of random models and features, and of those that saturate and wrap nearly everywhere. Changes
# with the arithmetic of docs/fixed-point.md and with test_fixed.c, never with the target.
CHECKSUM = "a5ccad5972f467ec"
SOURCES = [
    HERE / "test_fixed.c",
    *sorted((NATIVE / "src" / "fixed").glob("*.c")),
    NATIVE / "src" / "kernels" / "fixed_scalar.c",
]
FLAGS = ["-std=c11", "-O1", "-DDK_QUICK_BUILD", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"]


def checksum_of(folder: Path, compiler: list[str], more: list[str], runner: list[str]) -> str:
    program = folder / "test_fixed"
    rest = [*sorted((NATIVE / "src").glob("*.c")), NATIVE / "src" / "kernels" / "scalar.c"]
    files = [str(file) for file in (*SOURCES, *rest)]
    command = [*compiler, *FLAGS, f"-I{NATIVE / 'include'}", *more, *files, "-lm", "-o"]
    built = subprocess.run([*command, str(program)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([*runner, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"fixed: 0 failures, checksum ([0-9a-f]{16})", done.stdout)
    assert found, done.stdout
    return found[1]


def need(*tools: str) -> None:
    for tool in tools:
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}; tests/apt-packages.txt names the Debian packages")


def test_plain_c_on_this_machine(tmp_path: Path) -> None:
    need("cc")
    assert checksum_of(tmp_path, ["cc"], [], []) == CHECKSUM


def test_webassembly_vectors_under_node(tmp_path: Path) -> None:
    need("clang", "wasm-ld", "node")
    if not Path("/usr/lib/wasm32-wasi").is_dir():
        pytest.skip("needs wasi-libc; tests/apt-packages.txt names the Debian packages")
    kernel = str(NATIVE / "src" / "kernels" / "fixed_wasm.c")
    compiler = ["clang", "--target=wasm32-wasi", "--sysroot=/usr", "-msimd128", "-DDK_HAVE_WASM"]
    runner = ["node", "--no-warnings", str(HERE / "run_wasi.mjs")]
    assert checksum_of(tmp_path, compiler, [kernel], runner) == CHECKSUM


def test_a_real_model_has_the_same_bits_in_webassembly(trained: str, test_set: Path) -> None:
    need("clang", "wasm-ld", "node")
    if not Path("/usr/lib/wasm32-wasi").is_dir():
        pytest.skip("needs wasi-libc; tests/apt-packages.txt names the Debian packages")
    program = HERE.parents[1] / "benchmarks" / "fixed_targets.py"
    command = [sys.executable, program, "--model", trained, "--data", test_set, "--clips", "2"]
    done = subprocess.run([*map(str, command), "--targets", "wasm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "wasm, wasm: " in done.stdout
    assert "DIFFERENT" not in done.stdout
