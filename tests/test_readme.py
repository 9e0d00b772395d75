"""README: its commands and its Python run, its Python is typed, its links exist."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from conftest import PROJECT, Run
from webserver import Site

import deltakwt as package
from deltakwt.weights import registry

README = (PROJECT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def home(tmp_path: Path, test_set: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the project's, in which the commands of the README run."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "examples").symlink_to(PROJECT / "examples")
    monkeypatch.chdir(folder)
    return folder


def test_the_commands(
    home: Path,
    site: Site,
    arm_kwt1: Path,
    test_set: Path,
    deltakwt: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The downloads come from this machine; the data set is a small one of ours."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(test_set, ".")
    site.files["/speech_commands_test_set_v0.02.tar.gz"] = packed.getvalue()
    site.files[f"/{registry.PULLABLE['arm-kwt-1'].path}"] = arm_kwt1.read_bytes()
    monkeypatch.setenv("DELTAKWT_DATA_URL", site.url)
    monkeypatch.setenv("DELTAKWT_MODELS_URL", site.url)
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    ours = [command[1:] for command in commands if command[0] == "deltakwt"]
    assert len(ours) >= 6
    for command in ours:
        done = deltakwt(*command)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout
    assert all(command[0] in ("deltakwt", "make") for command in commands)


def test_the_python(home: Path, trained: str) -> None:
    for block in blocks("python"):
        code = block.replace('"kwt-1"', repr(trained))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("yes ")
        assert {"go", "left", "stop"} <= {line.split()[0] for line in done.stdout.splitlines()[1:]}


def _importable() -> dict[str, str]:
    """Return an environment in which mypy finds the package, installed or as a source tree."""
    home = Path(package.__file__).parent.parent
    is_installed = home.name == "site-packages"
    return dict(os.environ) if is_installed else {**os.environ, "MYPYPATH": str(home)}


def test_the_python_passes_mypy_strict(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for number, block in enumerate(blocks("python")):
        (tmp_path / f"block{number}.py").write_text(block)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(tmp_path)],
        capture_output=True,
        text=True,
        env=_importable(),
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    text = (PROJECT / name).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (PROJECT / target).exists(), target


def test_make_has_the_documented_targets() -> None:
    makefile = (PROJECT / "Makefile").read_text()
    named = {word for block in blocks("sh") for word in re.findall(r"make (\w+)", block)}
    contributing = (PROJECT / "CONTRIBUTING.md").read_text()
    named |= set(re.findall(r"^make (\w+)", contributing, re.MULTILINE))
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_commands_use_the_folders_that_data_get_writes() -> None:
    pages = [PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")]
    for page in pages:
        shown = re.findall(r"--\w+ (\S*speech_commands_\S*)", page.read_text())
        assert [path for path in shown if not path.startswith("data/")] == [], page.name


def test_source_files_that_documents_name_exist() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("needs a git checkout")
    files = ["/" + name for name in listed.stdout.splitlines()]
    pages = [*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md"), *PROJECT.glob("*/README.md")]
    assert len(pages) > 20
    for page in pages:
        for name in re.findall(r"`([\w/.-]+\.(?:py|c|h|cpp|js|sh|cmake))`", page.read_text()):
            assert any(file.endswith("/" + name) for file in files), f"{page}: {name}"


def test_the_closed_forms_of_the_algorithm_page_are_what_the_command_prints(deltakwt: Run) -> None:
    page = (PROJECT / "docs" / "algorithm.md").read_text()
    shown = re.search(r"```\n(  product .*?)```", page, re.DOTALL)
    assert shown is not None
    printed = deltakwt("macs", "--model", "kwt-3", COLUMNS="120").stdout.splitlines()
    for line in filter(None, shown[1].splitlines()):
        assert any(other.startswith(line) for other in printed), line
