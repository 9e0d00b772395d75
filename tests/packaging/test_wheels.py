"""What `make wheels` and `make test-wheels` do, as far as no compiler and no emulator is needed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import PROJECT

pytest.importorskip("elftools", reason="needs pyelftools, of the extra test")

import run_wheels
import wheels


def compiled_with(folder: Path, *arguments: str) -> str:
    """Return what the compiler of a target gets."""
    program = folder / "c++"
    text = wheels.COMPILER.format(zig="/bin/echo", language="c++", target="aarch64-macos.11.0")
    wheels.write_program(program, text)
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=True, timeout=30
    ).stdout.strip()


@pytest.mark.skipif(not Path("/bin/echo").exists(), reason="needs /bin/echo")
def test_the_arguments_of_the_compiler(tmp_path: Path) -> None:
    start = "c++ -target aarch64-macos.11.0"
    for arguments, expected in (
        (("-O3", "-c", "a b.cpp"), "-O3 -c a b.cpp"),
        (("CMakeCXXCompilerId.cpp",), "-c CMakeCXXCompilerId.cpp"),
        (("-bundle", "-Wl,@names.sym", "a.o"), "-dynamiclib -Wl,-undefined,dynamic_lookup a.o"),
        (("a.o", "-ldl", "-lm"), "a.o -lm"),
    ):
        assert compiled_with(tmp_path, *arguments) == f"{start} {expected}"


def test_every_platform_is_run_or_said_not_to_be() -> None:
    names = {target.name for target in wheels.TARGETS}
    assert set(run_wheels.RUNS) == {name for name in names if not name.startswith("macos")}
    page = (PROJECT / "docs" / "install.md").read_text()
    for target in wheels.TARGETS:
        assert page.count(f"`{target.tag}`") == 2, target.name  # a row for each of its two wheels


def report(**changes: object) -> str:
    words = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
    found: dict[str, object] = {
        "python": "3.14.0", "machine": "Linux x86_64", "kernels": ["scalar", "avx2"],
        "doctor": True, "failed": [], "heard": {word: word for word in words},
        "sentence": ["go", "left", "stop", "yes"], "missing": [], "lock": True,
        "fixed": {"scalar": "0123abcdef", "avx2": "0123abcdef"},
    }  # fmt: skip
    return json.dumps({**found, **changes})


def test_a_run_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_wheels, "FIXED_POINT", set())
    good = "Python 3.14.0 on Linux x86_64: scalar avx2; fixed point 0123abcd"
    assert run_wheels.judge(report()) == good
    for changes, fault in (
        ({"doctor": False, "failed": ["front end"]}, "front end"),
        ({"heard": {"yes": "no"}}, "misheard .*'yes': 'no'"),
        ({"sentence": ["go"]}, r"\['go'\]"),
        ({"missing": ["deltakwt.locks: fcntl"]}, "fcntl"),
        ({"lock": False}, "lock False"),
        ({"fixed": {"neon": "0123abcdee"}}, "other bits than before"),
    ):
        with pytest.raises(ValueError, match=fault):
            run_wheels.judge(report(**changes))


def test_the_wheel_of_an_interpreter(tmp_path: Path) -> None:
    tag = "win_amd64"
    for kind in ("cp311-cp311", "cp312-abi3"):
        (tmp_path / f"deltakwt-0.1.0-{kind}-{tag}.whl").touch()
    assert "cp311-cp311" in run_wheels.wheel_for(tmp_path, tag, 11).name
    assert "cp312-abi3" in run_wheels.wheel_for(tmp_path, tag, 14).name
    with pytest.raises(run_wheels.CannotRun, match="make wheels"):
        run_wheels.wheel_for(tmp_path, "win_arm64", 11)
