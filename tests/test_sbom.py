"""The bill of materials against the real content of the installed wheel."""

from __future__ import annotations

import base64
import csv
import importlib.metadata
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from conftest import PROJECT


def script(name: str) -> ModuleType:
    """Import a program of scripts/."""
    spec = importlib.util.spec_from_file_location(name, PROJECT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """The wheel from which deltakwt was installed, put together again from its files."""
    try:
        installed = importlib.metadata.distribution("deltakwt")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs an installed deltakwt: make test installs it")
    files = {str(file): Path(str(file.locate())) for file in installed.files or []}
    if "deltakwt/linked.json" not in files:
        pytest.skip("deltakwt is installed in place, not from a wheel")
    made = tmp_path / f"deltakwt-{installed.version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for name, path in files.items():
            added = name.endswith((".pyc", "/INSTALLER", "/REQUESTED", "/direct_url.json"))
            if not name.startswith("..") and not added:  # by pip
                archive.write(path, name)
    return made


def test_it_lists_what_is_in_the_wheel(wheel: Path) -> None:
    document = script("sbom").sbom(wheel)
    listed = {c["name"]: c for c in document["components"] if c["type"] == "file"}
    with zipfile.ZipFile(wheel) as archive:
        assert set(listed) == set(archive.namelist())
        record = next(name for name in archive.namelist() if name.endswith("/RECORD"))
        extension = next(name for name in listed if name.startswith("deltakwt/_native."))
        extension = next(name for name in listed if name.endswith(".so"))
        assert b"nanobind" in archive.read(extension)
        for name, checksum, _ in csv.reader(archive.read(record).decode().splitlines()):
            if name in listed and checksum:  # what the installer verified
                kind, _, value = checksum.partition("=")
                assert kind == "sha256"
                raw = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
                assert listed[name]["hashes"] == [{"alg": "SHA-256", "content": raw.hex()}]
    assert listed[extension]["licenses"][0]["expression"] == "Apache-2.0 AND BSD-3-Clause AND MIT"
    inside = [c for c in document["components"] if c["type"] == "file" or "version" in c]
    assert all(component["licenses"] for component in inside)
    linked = {c["name"]: c["version"] for c in inside if c["type"] == "library"}
    assert set(linked) == {"nanobind", "robin-map"}
    needed = {c["name"] for c in document["components"] if c.get("scope") == "required"}
    assert {"numpy", "rich", "safetensors", "soundfile", "soxr", "typer"} <= needed
    assert document == script("sbom").sbom(wheel)


def test_a_binary_of_unknown_origin_is_refused(wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("deltakwt.libs/libgomp-a34b3233.so.1.0.0", b"\x7fELF")
    command = [sys.executable, str(PROJECT / "scripts" / "sbom.py"), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "libgomp-a34b3233.so.1.0.0: a binary of unknown origin" in done.stderr
    assert not wheel.with_suffix(".cdx.json").exists()


def test_the_pinned_packages_are_those_of_the_project() -> None:
    """Every direct requirement is pinned in its range, with hashes, and no address is named."""
    packaging = pytest.importorskip("packaging.requirements", reason="needs packaging")
    import tomllib

    text = (PROJECT / "requirements-dev.txt").read_text()
    assert "://" not in text
    pinned = {}
    for block in text.split("\n"):
        if block and not block.startswith((" ", "#")):
            pinned.update([block.removesuffix(" \\").partition(" ;")[0].split("==")])
    blocks = [b for b in text.split("\n") if b.startswith("    --hash=sha256:")]
    assert len(blocks) >= len(pinned) > 50
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = ("tune", "report", "serve", "lint", "test", "dev")
    wanted = [*project["dependencies"], *(line for name in names for line in extras[name])]
    for line in wanted:
        need = packaging.Requirement(line)
        if need.name != "deltakwt":
            assert need.specifier.contains(pinned[need.name]), line
