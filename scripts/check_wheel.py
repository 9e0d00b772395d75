"""Check wheels: tags, files, size, and what the extension needs of system and interpreter.

    python scripts/check_wheel.py dist    (a folder, or wheels)

Prints one line per wheel. The exit code is 1 if a wheel has a fault. Needs pyelftools; abi3info for
wheels of the stable ABI. No wheel is imported or unpacked.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import sys
import zipfile
from pathlib import Path

from read_binary import Binary, elf_exports, read_binary

MAX_BYTES = 20_000_000
NAME = re.compile(r"deltakwt-(?P<version>[^-]+)-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>.+)")
SYSTEM_LIBRARIES = {
    "elf": re.compile(
        r"lib(c|m|pthread|dl|rt)\.so(\.6|\.[0-9])?$|ld-linux-.*\.so\.[0-9]$"
        r"|libc\.musl-.*\.so\.1$|lib(stdc\+\+\.so\.6|gcc_s\.so\.1)$"
    ),
    "pe": re.compile(
        r"(kernel32|ntdll|msvcrt|ucrtbase|vcruntime140(_1)?|api-ms-win-.*|python3(11)?)\.dll$", re.I
    ),
    "macho": re.compile(r"/usr/lib/libSystem\.B\.dylib$"),
}
FORMAT = {"manylinux": "elf", "musllinux": "elf", "win": "pe", "macosx": "macho"}
MACHINES = ("x86_64", "aarch64", "arm64", "amd64")
SUFFIX = {  # of the extension, by kind of tag; {} is the processor
    ("cp311", "manylinux"): "cpython-311-{}-linux-gnu.so",
    ("cp311", "musllinux"): "cpython-311-{}-linux-musl.so",
    ("cp311", "win"): "cp311-win_{}.pyd",
    ("cp311", "macosx"): "cpython-311-darwin.so",
    ("abi3", "manylinux"): "abi3.so",
    ("abi3", "musllinux"): "abi3.so",
    ("abi3", "win"): "pyd",
    ("abi3", "macosx"): "abi3.so",
}
NO_PLACE = re.compile(
    r"__pycache__|\.py[co]$|\.o$|\.a$|\.lib$|\.def$|\.dylib$|\.dll$|(^|/)\.|CMake(Cache|Files)|/tests?/"
)


def interpreter_exports() -> set[str]:
    """Return the names of the C interface that the running interpreter exports."""
    import sysconfig

    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDLIBRARY")
    paths = [Path(folder) / name, Path(sys.executable).resolve()]
    names: set[str] = set()
    for path in paths:
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            names |= elf_exports(path.read_bytes())
    return {name for name in names if re.match(r"_?Py", name)}


def check_wheel(path: Path) -> list[str]:
    """Return the faults of a wheel."""
    name = NAME.fullmatch(path.stem)
    if not name:
        return ["the file name is not that of a wheel of deltakwt"]
    kind = re.match("[a-z]+", name["platform"])
    if not kind or (name["abi"], kind[0]) not in SUFFIX:
        return [f"unknown tags {name['abi']}-{name['platform']}"]
    faults = []
    if (name["python"], name["abi"]) not in (("cp311", "cp311"), ("cp312", "abi3")):
        faults.append(f"wrong tags {name['python']}-{name['abi']}")
    if path.stat().st_size > MAX_BYTES:
        faults.append(f"{path.stat().st_size / 1e6:.1f} MB, more than {MAX_BYTES / 1e6:.0f}")
    with zipfile.ZipFile(path) as wheel:
        faults += check_record(wheel, name["version"])
        faults += check_tags(wheel, name)
        faults += check_files(wheel, name["version"])
        machine = next(m for m in MACHINES if name["platform"].endswith(m))
        wanted = "deltakwt/_native." + SUFFIX[name["abi"], kind[0]].format(machine)
        found = [n for n in wheel.namelist() if n.endswith((".so", ".pyd"))]
        if found != [wanted]:
            return [*faults, f"extensions {found}, not {wanted}"]
        binary = read_binary(wheel.read(wanted))
    return faults + check_binary(binary, name["abi"], kind[0], name["platform"], machine)


def check_record(wheel: zipfile.ZipFile, version: str) -> list[str]:
    """Every file is in RECORD with its hash, and nothing else is."""
    record = f"deltakwt-{version}.dist-info/RECORD"
    if record not in wheel.namelist():
        return ["RECORD is missing"]
    listed = {}
    for line in io.StringIO(wheel.read(record).decode()):
        name, digest, _ = line.rstrip("\r\n").rsplit(",", 2)
        listed[name.strip('"')] = digest
    files = {name for name in wheel.namelist() if not name.endswith("/")}
    faults = [f"RECORD: {name} differs" for name in sorted(files ^ set(listed))]
    for name in sorted(files & set(listed) - {record}):
        digest = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest())
        if listed[name] != "sha256=" + digest.rstrip(b"=").decode():
            faults.append(f"RECORD: wrong hash of {name}")
    return faults


def check_tags(wheel: zipfile.ZipFile, name: re.Match[str]) -> list[str]:
    """The tags in the file WHEEL are those of the file name."""
    text = wheel.read(f"deltakwt-{name['version']}.dist-info/WHEEL").decode()
    tags = {line[5:] for line in text.splitlines() if line.startswith("Tag: ")}
    wanted = {f"{name['python']}-{name['abi']}-{p}" for p in name["platform"].split(".")}
    faults = [] if tags == wanted else [f"WHEEL: tags {sorted(tags)}, not {sorted(wanted)}"]
    if "Root-Is-Purelib: false" not in text:
        faults.append("WHEEL: says that the wheel is pure Python")
    return faults


def check_files(wheel: zipfile.ZipFile, version: str) -> list[str]:
    """Only the package and its metadata; the shipped models and the C sources of `export`."""
    names = wheel.namelist()
    roots = ("deltakwt/", f"deltakwt-{version}.dist-info/")
    faults = [f"stray file {name}" for name in names if not name.startswith(roots)]
    exported = "deltakwt/export/native/"
    for name in names:
        if name.startswith(roots) and NO_PLACE.search(
            name.replace(f"{exported}mcu/test/", exported)
        ):
            faults.append(f"stray file {name}")
        if name.endswith((".c", ".h", ".cpp")) and not name.startswith(exported):
            faults.append(f"stray source {name}")
    wanted = ("py.typed", "_native.pyi", "models/kwt-1/model.safetensors", "selftest.flac")
    faults += [f"{n} is missing" for n in wanted if f"deltakwt/{n}" not in names]
    return faults


def check_binary(binary: Binary, abi: str, kind: str, platform: str, machine: str) -> list[str]:
    """The extension fits its tags, exports one function, and needs only the system and Python."""
    faults = []
    wanted = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if (binary.format, binary.machine) != (FORMAT[kind], wanted):
        faults.append(f"the extension is {binary.format} {binary.machine}, not {machine}")
    # Templates of the C++ library keep their names in some linkers' tables.
    exports = {name for name in binary.exports if not name.startswith(("_Z", "__Z"))}
    exports -= {"__dso_handle", "_mh_dylib_header"}  # of every library of macOS
    if exports != {"PyInit__native"}:
        faults.append(f"exports {sorted(exports)[:5]}, not PyInit__native alone")
    for library in sorted(binary.libraries):
        if not SYSTEM_LIBRARIES[binary.format].match(library):
            faults.append(f"needs the library {library}")
    limit = tuple(map(int, re.findall("[0-9]+", platform)[:2])) if kind != "win" else ()
    if kind in ("manylinux", "macosx") and binary.oldest > limit:
        faults.append(f"needs {kind} {'.'.join(map(str, binary.oldest))}, newer than its tag")
    if kind == "musllinux" and binary.oldest:
        faults.append("needs symbols of glibc")
    if kind == "macosx" and machine == "arm64" and not binary.signed:
        faults.append("not signed; macOS loads no unsigned code on arm64")
    if kind == "win":
        dll = {"abi3": "python3.dll", "cp311": "python311.dll"}[abi]
        pythons = {n.lower() for n in binary.libraries if n.lower().startswith("python")}
        if pythons != {dll}:
            faults.append(f"loads {sorted(pythons)}, not {dll}")
    return faults + check_symbols(binary, abi)


def check_symbols(binary: Binary, abi: str) -> list[str]:
    """Return the functions of Python that the extension needs and its interpreters lack."""
    used = {name for name in binary.imports if re.match(r"_?Py", name)}
    if not used:
        return ["uses no function of Python"]
    if abi == "abi3":
        from abi3info import DATAS, FUNCTIONS

        stable = {
            symbol.name
            for table in (DATAS, FUNCTIONS)
            for symbol, facts in table.items()
            if (facts.added.major, facts.added.minor) <= (3, 12)
        }
        return [f"{name} is not in the stable ABI of 3.12" for name in sorted(used - stable)]
    if sys.version_info[:2] != (3, 11):  # the names are known only to a 3.11
        return []
    return [f"{n} is not in CPython 3.11" for n in sorted(used - interpreter_exports())]


def main(paths: list[Path]) -> int:
    """Check the named wheels and print what was found."""
    paths = [p for path in paths for p in (sorted(path.glob("*.whl")) if path.is_dir() else [path])]
    if not paths:
        raise SystemExit("name the wheels to check")
    failed = 0
    for path in paths:
        faults = check_wheel(path)
        failed += bool(faults)
        print(f"{path.name}: {'; '.join(faults) or 'good'} ({path.stat().st_size / 1e6:.1f} MB)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]]))
