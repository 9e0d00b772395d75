"""The checker of wheels: it passes a good wheel and names the fault of every spoiled one."""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import deltakwt as package
from deltakwt import _native

pytest.importorskip("elftools", reason="needs pyelftools, of the extra test")
if sys.platform != "linux" or sys.version_info[:2] != (3, 11):
    pytest.skip(
        "the wheel is made of the extension of CPython 3.11 on Linux", allow_module_level=True
    )

import check_wheel
import read_binary

VERSION = package.__version__
INFO = f"deltakwt-{VERSION}.dist-info"
EXTENSION = Path(_native.__file__)
MACHINE = EXTENSION.name.split("-")[2]
TAG = f"cp311-cp311-manylinux_2_99_{MACHINE}"  # whatever glibc this machine has
Files = dict[str, bytes]


def good_files() -> Files:
    files = {
        f"deltakwt/{name}": b"content"
        for name in ("py.typed", "_native.pyi", "selftest.flac", "models/kwt-1/model.safetensors")
    }
    files["deltakwt/export/native/mcu/test/selftest.c"] = b"int main(void);"
    files[f"deltakwt/{EXTENSION.name}"] = EXTENSION.read_bytes()
    files[f"{INFO}/WHEEL"] = f"Root-Is-Purelib: false\nTag: {TAG}\n".encode()
    return files


def write(folder: Path, files: Files, tag: str = TAG, record: str | None = None) -> Path:
    """Write a wheel; the RECORD is right unless another is given."""
    if record is None:
        rows = []
        for name, content in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            rows.append(f"{name},sha256={digest.decode()},{len(content)}")
        record = "\n".join([*rows, f"{INFO}/RECORD,,"]) + "\n"
    path = folder / f"deltakwt-{VERSION}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
        wheel.writestr(f"{INFO}/RECORD", record)
    return path


def test_a_good_wheel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, good_files())
    assert check_wheel.check_wheel(path) == []
    assert check_wheel.main([tmp_path]) == 0
    assert ": good (" in capsys.readouterr().out


def add(name: str, content: bytes = b"x") -> Callable[[Files], None]:
    return lambda files: files.update({name: content})


def edit(name: str, old: bytes, new: bytes) -> Callable[[Files], None]:
    return lambda files: files.update({name: files[name].replace(old, new)})


LIBRARY = f"deltakwt/{EXTENSION.name}"


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (add("tests/test_it.py"), "stray file tests/test_it.py"),
        (add("deltakwt/__pycache__/a.pyc"), "stray file deltakwt/__pycache__/a.pyc"),
        (add("deltakwt/.cache"), "stray file deltakwt/.cache"),
        (add("deltakwt/tests/a.py"), "stray file deltakwt/tests/a.py"),
        (add("deltakwt/core.c"), "stray source deltakwt/core.c"),
        (add("deltakwt/_native.abi3.so"), "extensions .*abi3"),
        (lambda files: files.pop("deltakwt/py.typed"), "py.typed is missing"),
        (lambda files: files.pop(LIBRARY), r"extensions \[\]"),
        (edit(f"{INFO}/WHEEL", b"cp311-cp311", b"cp312-abi3"), "WHEEL: tags"),
        (edit(f"{INFO}/WHEEL", b"false", b"true"), "pure Python"),
        (edit(LIBRARY, b"PyInit__native", b"PyInit__nativf"), "exports .*nativf"),
        (edit(LIBRARY, b"PyErr_SetString\0", b"PyErr_SetStrinx\0"), "PyErr_SetStrinx is not in"),
        (edit(LIBRARY, b"libc.so.6\0", b"libx.so.6\0"), "needs the library libx.so.6"),
    ],
)
def test_a_fault_is_named(spoil: Callable[[Files], None], fault: str, tmp_path: Path) -> None:
    files = good_files()
    spoil(files)
    faults = check_wheel.check_wheel(write(tmp_path, files))
    assert any(re.search(fault, found) for found in faults), faults


def test_faults_of_tags_size_and_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faults(tag: str) -> str:
        files = good_files()
        files[f"{INFO}/WHEEL"] = f"Root-Is-Purelib: false\nTag: {tag}\n".encode()
        return "; ".join(check_wheel.check_wheel(write(tmp_path, files, tag)))

    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[MACHINE]
    assert "newer than its tag" in faults(f"cp311-cp311-manylinux_2_1_{MACHINE}")
    assert "extensions" in faults(f"cp311-cp311-manylinux_2_99_{other}")
    assert "unknown tags" in faults("cp313-cp313-win_arm")
    assert "wrong tags" in faults(f"cp313-abi3-manylinux_2_99_{MACHINE}")
    missing = write(tmp_path, good_files(), record=f"{INFO}/RECORD,,\n")
    assert "RECORD: deltakwt/py.typed differs" in check_wheel.check_wheel(missing)
    wrong = write(tmp_path, good_files())
    with zipfile.ZipFile(wrong) as wheel:
        record = wheel.read(f"{INFO}/RECORD").decode()
    wrong = write(tmp_path, {**good_files(), "deltakwt/py.typed": b"other"}, record=record)
    assert "RECORD: wrong hash of deltakwt/py.typed" in check_wheel.check_wheel(wrong)
    monkeypatch.setattr(check_wheel, "MAX_BYTES", 1000)
    assert any("more than" in fault for fault in check_wheel.check_wheel(wrong))


def macho(minimum: int, *symbols: tuple[str, int], signed: bool = False) -> bytes:
    """A library of macOS that has only what is read of it."""
    strings, entries = b"\0", b""
    for name, kind in symbols:
        entries += struct.pack("<IBBHQ", len(strings), kind, 0, 0, 0)
        strings += name.encode() + b"\0"
    library = b"/usr/lib/libSystem.B.dylib\0".ljust(32, b"\0")
    load = struct.pack("<IIIIII", 0xC, 24 + len(library), 24, 0, 0, 0) + library
    version = struct.pack("<IIIIII", 0x32, 24, 1, minimum << 16, 0, 0)
    if signed:
        version += struct.pack("<IIII", 0x1D, 16, 0, 0)
    where = 32 + len(load) + len(version) + 24
    table = struct.pack("<6I", 2, 24, where, len(symbols), where + len(entries), len(strings))
    header = struct.pack("<IiIIIIII", 0xFEEDFACF, 0x0100000C, 0, 6, 3 + signed, where - 32, 0, 0)
    return header + load + version + table + entries + strings


def test_a_library_of_macos() -> None:
    defined, undefined, private = 0x0F, 0x01, 0x1F
    data = macho(11, ("_PyInit__native", defined), ("_PyList_New", undefined), ("_dk", private))
    found = read_binary.read_binary(data)
    assert (found.format, found.machine, found.oldest) == ("macho", "aarch64", (11, 0))
    assert found.libraries == {"/usr/lib/libSystem.B.dylib"}
    assert (found.exports, found.imports) == ({"PyInit__native"}, {"PyList_New"})


def test_macos_on_arm_loads_only_signed_code() -> None:
    symbols = (("_PyInit__native", 0x0F), ("_PyList_New", 0x01))

    def faults(data: bytes, machine: str) -> list[str]:
        found = read_binary.read_binary(data)
        return check_wheel.check_binary(found, "cp311", "macosx", "macosx_11_0_" + machine, machine)

    assert any("not signed" in fault for fault in faults(macho(11, *symbols), "arm64"))
    assert faults(macho(11, *symbols, signed=True), "arm64") == []


def test_a_program_of_windows() -> None:
    distlib = pytest.importorskip("pip._vendor.distlib", reason="needs pip and its programs")
    program = Path(distlib.__file__).parent / "t64.exe"
    if not program.is_file():
        pytest.skip("this pip has no programs for Windows")
    found = read_binary.read_binary(program.read_bytes())
    assert (found.format, found.machine) == ("pe", "x86_64")
    assert "KERNEL32.dll" in found.libraries
    assert "ExitProcess" in found.imports


def test_another_file_is_refused() -> None:
    with pytest.raises(ValueError, match="not an extension"):
        read_binary.read_binary(b"hello")
