"""Build the wheels of every platform on one Linux machine. `make wheels` runs it.

    python scripts/wheels.py [--only NAME ...] [--python PATH ...] [--out dist]

zig (the package `ziglang`) is the compiler of every target, scikit-build-core packs the wheel as
for an ordinary build. Each target gets two wheels: one for CPython 3.11, and one for the stable ABI
that CPython 3.12 and every later version load. So the headers of two interpreters are needed: 3.11,
and 3.12 or newer. They are looked for in PATH and in the folder of pyenv; --python names them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
REQUIREMENTS = Path(__file__).with_name("wheels-requirements.txt")


@dataclass(frozen=True)
class Target:
    """One platform."""

    name: str
    zig: str  # the target triple of zig, with the oldest C library or macOS that is served
    system: str  # CMAKE_SYSTEM_NAME
    processor: str
    tag: str  # the platform tag of the wheel
    soabi: str  # of CPython 3.11, without "cpython-311-"


TARGETS = (
    Target("linux-x86_64", "x86_64-linux-gnu.2.28", "Linux", "x86_64", "manylinux_2_28_x86_64",
           "cpython-311-x86_64-linux-gnu"),
    Target("linux-aarch64", "aarch64-linux-gnu.2.28", "Linux", "aarch64", "manylinux_2_28_aarch64",
           "cpython-311-aarch64-linux-gnu"),
    Target("musl-x86_64", "x86_64-linux-musl", "Linux", "x86_64", "musllinux_1_2_x86_64",
           "cpython-311-x86_64-linux-musl"),
    Target("musl-aarch64", "aarch64-linux-musl", "Linux", "aarch64", "musllinux_1_2_aarch64",
           "cpython-311-aarch64-linux-musl"),
    Target("windows-x86_64", "x86_64-windows-gnu", "Windows", "AMD64", "win_amd64",
           "cp311-win_amd64"),
    Target("macos-x86_64", "x86_64-macos.11.0", "Darwin", "x86_64", "macosx_11_0_x86_64",
           "cpython-311-darwin"),
    Target("macos-arm64", "aarch64-macos.11.0", "Darwin", "arm64", "macosx_11_0_arm64",
           "cpython-311-darwin"),
)  # fmt: skip

# CPython's headers are the same for every system but for pyconfig.h. On 64-bit Linux and macOS the
# facts that the headers read from it are the same too. These are the facts of Windows.
WINDOWS_PYCONFIG = """\
#pragma once
#include <io.h>
#define MS_WIN32
#define MS_WIN64
#define MS_WINDOWS
#define NT_THREADS
#define WITH_THREAD 1
#define WITH_DOC_STRINGS 1
#define HAVE_DECLSPEC_DLL
#define Py_ENABLE_SHARED 1
#define PLATFORM "win32"
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_HKEY 8
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_FLOAT 4
#define SIZEOF_DOUBLE 8
#define SIZEOF_WCHAR_T 2
#define SIZEOF_PID_T 4
#define ALIGNOF_SIZE_T 8
#define ALIGNOF_MAX_ALIGN_T 8
#define HAVE_STDINT_H 1
#define HAVE_STDDEF_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_WCHAR_H 1
"""


class Interpreter:
    """A CPython of this machine: its headers, and an environment with the build tools."""

    def __init__(self, executable: Path, work: Path) -> None:
        """Ask `executable` what it is; the environment is made in `work`."""
        ask = (
            "import sys, sysconfig; print(*sys.version_info[:2]);"
            "print(sysconfig.get_path('include')); print(sysconfig.get_config_h_filename())"
        )
        answers = run_quietly(executable, "-c", ask).splitlines()
        self.executable = executable
        major, minor = answers[0].split()
        self.version = int(major), int(minor)
        self.include, self.config = Path(answers[1]), Path(answers[2])
        self.stable = self.version >= (3, 12)
        self.environment = work / f"python{major}.{minor}"

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.environment / "bin" / "python"

    def prepare(self) -> None:
        """Create the environment, once."""
        done = self.environment / "done"
        if done.is_file() and done.read_text() == REQUIREMENTS.read_text():
            return
        if not (self.include / "Python.h").is_file():
            raise SystemExit(f"{self.executable}: no headers in {self.include}; install them")
        subprocess.run([self.executable, "-m", "venv", "--clear", self.environment], check=True)
        subprocess.run(
            [self.python, "-m", "pip", "install", "-q", "-r", REQUIREMENTS], check=True
        )  # fmt: skip
        done.write_text(REQUIREMENTS.read_text())

    def zig(self) -> Path:
        """The compiler."""
        code = "import ziglang; print(ziglang.__path__[0])"
        return Path(run_quietly(self.python, "-c", code).strip()) / "zig"


def run_quietly(*command: object) -> str:
    """Run a command and return its output; stop with its error output if it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr or done.stdout}")
    return done.stdout


def find_interpreters(named: list[Path], work: Path) -> list[Interpreter]:
    """Return one CPython 3.11 and one of 3.12 or newer."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    folders += sorted((Path.home() / ".pyenv" / "versions").glob("*/bin"))
    names = ("python3.11", "python3.12", "python3.13", "python3.14")
    there = named or [folder / name for name in names for folder in folders]
    found: dict[bool, Interpreter] = {}
    for path in there:
        if not path.is_file() or "shims" in path.parts:
            continue
        interpreter = Interpreter(path.resolve(), work)
        usable = interpreter.version >= (3, 11) and (interpreter.include / "Python.h").is_file()
        if usable and interpreter.stable not in found:
            found[interpreter.stable] = interpreter
    for stable, wanted in ((False, "3.11"), (True, "3.12 or newer")):
        if stable not in found and not named:
            raise SystemExit(
                f"no CPython {wanted} with headers in PATH or ~/.pyenv; install one, or name the "
                "interpreters to build for with --python"
            )
    return [found[stable] for stable in sorted(found)]


def headers(interpreter: Interpreter, target: Target, folder: Path) -> Path:
    """Copy the headers of the interpreter, with the pyconfig.h of the target."""
    include = folder / "include"
    shutil.rmtree(include, ignore_errors=True)
    shutil.copytree(interpreter.include, include)
    (include / "pyconfig.h").unlink(missing_ok=True)
    if target.system == "Windows":
        (include / "pyconfig.h").write_text(WINDOWS_PYCONFIG)
    else:
        shutil.copyfile(real_pyconfig(interpreter), include / "pyconfig.h")
    return include


def real_pyconfig(interpreter: Interpreter) -> Path:
    """Return pyconfig.h; Debian's only includes that of the processor, from another folder."""
    for name in re.findall(r"include <(\S+/pyconfig\.h)>", interpreter.config.read_text()):
        path = interpreter.include.parent / name
        if path.is_file():
            return path
    return interpreter.config


def import_library(interpreter: Interpreter, folder: Path) -> Path:
    """Make the library through which an extension of Windows finds Python's functions.

    It lists the stable ABI, or for CPython 3.11 every function that the interpreter here exports.
    A name in it that Windows lacks does no harm until it is used; scripts/check_wheel.py looks.
    """
    module = "python3" if interpreter.stable else "python311"
    code = (
        "from abi3info import DATAS, FUNCTIONS;"
        "print(*(s.name for s in [*DATAS, *FUNCTIONS]), sep='\\n')"
        if interpreter.stable
        else "import check_wheel; print(*check_wheel.interpreter_exports(), sep='\\n')"
    )
    names = subprocess.run(
        [interpreter.python, "-c", code],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parent,
    ).stdout.split()  # fmt: skip
    definition, library = folder / f"{module}.def", folder / f"{module}.lib"
    lines = [f"LIBRARY {module}.dll", "EXPORTS", *(f"    {name}" for name in sorted(set(names)))]
    definition.write_text("\n".join(lines) + "\n")
    run_quietly(
        interpreter.zig(), "dlltool", "-m", "i386:x86-64", "-d", definition, "-l", library
    )  # fmt: skip
    return library


# CMake links a program only to read the compiler's name in it; zig would first compile the whole
# C++ library for it, unoptimised. On macOS, nanobind hands the linker a file of Python's names,
# which zig's does not read, and zig 0.15 crashes on -bundle; Python loads a dylib just as
# well. For Windows, CMake adds the library dl, which the Python of this machine needs.
COMPILER = """\
#!/bin/bash
arguments=()
for argument in "$@"; do
    case $argument in
        CMakeC*CompilerId.c*) arguments+=(-c "$argument") ;;
        -Wl,@*) arguments+=(-Wl,-undefined,dynamic_lookup) ;;
        -bundle) arguments+=(-dynamiclib) ;;
        -ldl) ;;
        *) arguments+=("$argument") ;;
    esac
done
exec "{zig}" {language} -target {target} "${{arguments[@]}}"
"""


def write_program(path: Path, text: str) -> None:
    """Write a script that can be run."""
    path.write_text(text)
    path.chmod(0o755)


def toolchain(interpreter: Interpreter, target: Target, folder: Path) -> Path:
    """Write the CMake toolchain file, and the programs that it names."""
    zig = interpreter.zig()
    for tool in ("ar", "ranlib"):
        write_program(folder / tool, f'#!/bin/sh\nexec "{zig}" {tool} "$@"\n')
    for language in ("cc", "c++"):
        text = COMPILER.format(zig=zig, language=language, target=target.zig)
        write_program(folder / language, text)
    soabi, sosabi = target.soabi, "" if target.system == "Windows" else "abi3"
    lines = [
        f"set(CMAKE_SYSTEM_NAME {target.system})",
        f"set(CMAKE_SYSTEM_PROCESSOR {target.processor})",
        f'set(CMAKE_C_COMPILER "{folder}/cc")',
        f'set(CMAKE_CXX_COMPILER "{folder}/c++")',
        "set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)",
        "set(CMAKE_LINK_DEPENDS_USE_LINKER FALSE)",  # zig does not know --dependency-file
        f'set(CMAKE_AR "{folder}/ar")',
        f'set(CMAKE_RANLIB "{folder}/ranlib")',
        f'set(Python_INCLUDE_DIR "{headers(interpreter, target, folder)}")',
        f'set(SKBUILD_SOABI "{soabi}")',
        f'set(SKBUILD_SOSABI "{sosabi}")',
        "set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)",
        "set(CMAKE_SHARED_MODULE_SUFFIX .so)",
        # clang 18 to 21 enables 512-bit vectors separately when a feature is named by itself
        "set(DK_AVX512_MORE -mevex512)",
        # Asked for a list of headers, zig compiles again what it has in its cache.
        f'set(CMAKE_USER_MAKE_RULES_OVERRIDE "{folder}/rules.cmake")',
    ]
    rules = [f'set(CMAKE_DEPFILE_FLAGS_{language} "")' for language in ("C", "CXX")]
    (folder / "rules.cmake").write_text("\n".join(rules) + "\n")
    if target.system == "Windows":
        library = import_library(interpreter, folder)
        major, minor = interpreter.version
        other = folder / f"python{major}{minor}.lib"  # CMake reads the version in the name
        if interpreter.stable:
            shutil.copyfile(library, other)
            lines.append(f'set(Python_SABI_LIBRARY "{library}")')
        lines += [f'set(Python_LIBRARY "{other}")', f'set(NB_SUFFIX ".{soabi}.pyd")']
    if target.system == "Darwin":
        write_program(folder / "install_name_tool", "#!/bin/sh\n")  # no path to change
        lines += [f'set(CMAKE_INSTALL_NAME_TOOL "{folder}/install_name_tool")',
                  'set(CMAKE_OSX_SYSROOT "")']  # fmt: skip
    path = folder / "toolchain.cmake"
    path.write_text("\n".join(lines) + "\n")
    return path


def build(interpreter: Interpreter, target: Target, work: Path, out: Path) -> Path:
    """Build one wheel and give it its tags."""
    folder = work / f"{target.name}-{interpreter.environment.name}"
    made = folder / "made"
    folder.mkdir(parents=True, exist_ok=True)
    for old in (made, folder / "build"):  # zig's cache knows what need not be compiled again
        shutil.rmtree(old, ignore_errors=True)
    log = folder / "log.txt"
    tools = toolchain(interpreter, target, folder)
    command = [interpreter.python, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps",
               "-w", made, f"--config-settings=build-dir={folder / 'build'}",
               f"--config-settings=cmake.define.CMAKE_TOOLCHAIN_FILE={tools}",
               PROJECT]  # fmt: skip
    environment = dict(os.environ, PATH=f"{interpreter.python.parent}:{os.environ['PATH']}")
    with log.open("w") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    if done.returncode:
        raise SystemExit(f"{target.name}, {interpreter.environment.name}: failed, see {log}")
    (wheel,) = made.glob("*.whl")
    python, abi = ("cp312", "abi3") if interpreter.stable else ("cp311", "cp311")
    tags = ["--python-tag", python, "--abi-tag", abi, "--platform-tag", target.tag]
    run_quietly(interpreter.python, "-m", "wheel", "tags", "--remove", *tags, wheel)
    (wheel,) = made.glob("*.whl")
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(wheel, out / wheel.name))


def main() -> None:
    """Parse the options and build."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [target.name for target in TARGETS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--python", nargs="+", type=Path, default=[], metavar="PATH")
    parser.add_argument("--out", type=Path, default=PROJECT / "dist")
    parser.add_argument("--work", type=Path, default=PROJECT / "build" / "wheels")
    options = parser.parse_args()
    work = options.work.resolve()
    interpreters = find_interpreters(options.python, work)
    for interpreter in interpreters:
        interpreter.prepare()
    for target in TARGETS:
        if target.name in options.only:
            for interpreter in interpreters:
                wheel = build(interpreter, target, work, options.out.resolve())
                print(f"{wheel.name}  {wheel.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    sys.exit(main())
