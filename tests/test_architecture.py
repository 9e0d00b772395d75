"""The import graph, the sizes of files, and the architecture page."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from conftest import PROJECT

import deltakwt

SOURCE = PROJECT / "src" / "deltakwt"

# A module may import from its own layer and from the layers before it.
LAYERS = (
    ("core",),
    ("audio", "containers", "files", "locks", "logs", "plotting", "provenance", "text", "workers"),
    ("weights",),
    ("listen",),
    ("data",),
    ("evaluate",),
    ("tune", "train", "bench", "report", "export", "serve", "archive"),
    ("explore",),
    ("doctor",),
    ("cli",),
    ("__main__", "__init__"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# `Model` is the public face: it hands files, long sounds and model names to the packages above.
UPWARD = {
    ("core.model", "audio"),
    ("core.model", "listen.spotter"),
    ("core.model", "weights.registry"),
}
# The torch engine of the benchmark is training's network, imported when that engine is asked for.
TORCH_PEERS = {("bench", "train")}


def modules() -> dict[str, Path]:
    """Return every module of the package by its name below `deltakwt`."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found[name] = path
    return found


def imports(path: Path, *, lazy: bool) -> Iterator[str]:
    """Yield what a file imports from deltakwt; `lazy` adds imports inside functions.

    Imports for type checkers only are left out: they do not exist at run time.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("deltakwt"):
            base = (node.module or "").removeprefix("deltakwt").lstrip(".")
            for alias in node.names:
                yield f"{base}.{alias.name}".lstrip(".")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("deltakwt."):
                    yield alias.name.removeprefix("deltakwt.")
        elif lazy or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending += ast.iter_child_nodes(node)


def graph(*, lazy: bool) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    known = modules()

    def module_of(name: str) -> str | None:
        while name and name not in known:
            name = name.rpartition(".")[0]
        return name or None

    return {
        name: {
            target
            for imported in imports(path, lazy=lazy)
            if (target := module_of(imported)) and target != name
        }
        for name, path in known.items()
    }


def test_every_package_has_a_place_in_the_order() -> None:
    assert {name.split(".")[0] for name in modules()} <= set(RANK)


def test_no_module_imports_from_a_package_above_it() -> None:
    wrong = [
        f"{module} imports {target}"
        for module, targets in graph(lazy=True).items()
        for target in sorted(targets)
        if _is_upward(module, target)
    ]
    assert not wrong


def _is_upward(module: str, target: str) -> bool:
    here, there = module.split(".")[0], target.split(".")[0]
    if (module, target) in UPWARD or (here, there) in TORCH_PEERS:
        return False
    same_layer = RANK[here] == RANK[there] and here != there and RANK[here] != RANK["audio"]
    return RANK[there] > RANK[here] or same_layer


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    edges = graph(lazy=False)
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module not in done:
            for target in edges[module]:
                visit(target, (*path, module))
            done.add(module)

    for module in edges:
        visit(module, ())


def test_the_core_needs_nothing_but_numpy() -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "deltakwt"}
    for path in (SOURCE / "core").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            assert {name.split(".")[0] for name in names} <= allowed, path


def test_only_training_imports_torch() -> None:
    for name, path in modules().items():
        if name.split(".")[0] != "train":
            text = path.read_text(encoding="utf-8")
            assert "import torch" not in text, name
            assert "from torch" not in text, name


def test_inference_does_not_import_the_definitions() -> None:
    """The engines are compared with these modules, so they must not depend on them."""
    code = """
import sys, numpy, deltakwt
for arithmetic in ("fixed", "float"):
    model = deltakwt.load("kwt-1", arithmetic=arithmetic)
    model(numpy.zeros(16_000))
    model.spot(numpy.zeros(48_000))
print(*(name for name in sys.modules if name.startswith("deltakwt.core.")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.rpartition(".")[2] for name in done.stdout.split()}
    assert {"engine", "fixed_engine"} <= imported
    assert not imported & {"reference", "fixed", "frontend", "exact_frontend", "fixed_scales"}


@pytest.mark.parametrize("name", ["deltakwt", "deltakwt.cli"])
def test_importing_is_light(name: str) -> None:
    """Neither the package nor the command line loads NumPy before it is needed."""
    code = f"import {name}, sys; print([m for m in ('numpy', 'torch', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_class_name_exists_twice() -> None:
    homes: dict[str, list[str]] = {}
    for module, path in modules().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    assert not {name: found for name, found in homes.items() if len(found) > 1}


def test_files_are_of_a_readable_size() -> None:
    core = [path for path in (PROJECT / "native" / "src").rglob("*") if path.suffix in (".c", ".h")]
    assert len(core) > 20
    sizes = {path: len(path.read_text().splitlines()) for path in [*modules().values(), *core]}
    assert not {path: size for path, size in sizes.items() if size > 350}


def test_the_steps_of_the_architecture_page_name_existing_functions() -> None:
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    steps = text.partition("## One clip, step by step")[2].partition("## Definitions")[0]
    in_c = "".join(path.read_text() for path in (PROJECT / "native" / "src").rglob("*.c"))
    c_names = set(re.findall(r"`(dk_\w+|feed_forward)`", steps))
    assert len(c_names) >= 12
    for name in c_names:
        assert re.search(rf"^\w[\w *]*\b{name}\(", in_c, re.MULTILINE), name
    packages = "|".join(name for names in LAYERS[:-2] for name in names)
    python_names = set(re.findall(rf"`((?:{packages})\.[\w.]+)`", steps))
    assert len(python_names) >= 15
    for name in python_names:
        found: object = deltakwt
        for part in name.split("."):
            if isinstance(found, ModuleType) and not hasattr(found, part):
                importlib.import_module(f"{found.__name__}.{part}")
            found = getattr(found, part)
