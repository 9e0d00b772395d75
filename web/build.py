"""Build the browser's files: the WebAssembly engine, and the page as a folder of static files.

`python web/build.py engine` compiles web/*.wasm; it needs ziglang from PyPI.
`python web/build.py page --out FOLDER` writes the page, a model and sounds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

WEB = Path(__file__).parent
NATIVE = WEB.parent / "native"
# The core without open.c, which maps files, and with the kernels of this machine only.
SOURCES = (
    *(path for path in sorted((NATIVE / "src").glob("*.c")) if path.name != "open.c"),
    *sorted((NATIVE / "src" / "fixed").glob("*.c")),
    *(NATIVE / "src" / "kernels" / name for name in ("scalar.c", "wasm.c")),
    *(NATIVE / "src" / "kernels" / name for name in ("fixed_scalar.c", "fixed_wasm.c")),
    WEB / "src" / "engine.c",
)
SMALL = 4_000_000  # bytes of weights
FLAGS = (
    "-std=c11", "-O3", "-msimd128", "-mexec-model=reactor", "-Wall", "-Wextra",
    "-ffp-contract=off", "-fno-math-errno", "-DDK_HAVE_WASM", "-DDK_MOST_LANES=4",
    f"-ffile-prefix-map={WEB.parent}=.", "-Wl,--strip-all",
)  # fmt: skip


# With relaxed SIMD a multiply-add is one instruction. Not every browser has it.
ENGINES = {"deltakwt.wasm": (), "deltakwt-relaxed.wasm": ("-mrelaxed-simd",)}


def build_engine(folder: Path) -> None:
    """Compile the engines. The same sources and compiler give the same bytes."""
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi", *FLAGS]
    compiler += [f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}", *map(str, SOURCES)]
    for name, flags in ENGINES.items():
        out = folder / name
        subprocess.run([*compiler, *flags, "-o", str(out)], check=True)
        out.chmod(0o644)
        print(f"{out}: {out.stat().st_size} bytes")


def build_page(out: Path, models: list[str], sounds: list[Path]) -> None:
    """Write the page with models and sounds; any file server can serve the folder."""
    from deltakwt.explore.site import Site

    for name, data in Site.of(models, sounds, is_kept=True).static_files():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    print(f"{out}: {sum(p.stat().st_size for p in out.rglob('*') if p.is_file())} bytes")


def small_models() -> Iterator[str]:
    """Yield the shipped models that are small enough for every visitor of a page."""
    from deltakwt.explore.site import shipped_models
    from deltakwt.weights.registry import resolve

    for name in shipped_models("kwt-1"):
        if (resolve(name) / "model.safetensors").stat().st_size < SMALL:
            yield name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    engine = parts.add_parser("engine", help="compile the WebAssembly engine")
    engine.add_argument("--out", type=Path, default=WEB, help="the folder to write to")
    page = parts.add_parser("page", help="write the page as static files")
    page.add_argument("--out", type=Path, required=True)
    page.add_argument(
        "--model", action="append", help="a model; can be repeated (default: small ones)"
    )
    page.add_argument("sounds", nargs="*", type=Path, help="sound files to offer as examples")
    given = parser.parse_args()
    if given.part == "engine":
        build_engine(given.out)
    else:
        build_page(given.out, given.model or list(small_models()), given.sounds)


if __name__ == "__main__":
    main()
