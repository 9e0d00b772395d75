"""Read what an extension module needs and exports: ELF, PE (Windows) and Mach-O (macOS)."""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection


@dataclass(frozen=True)
class Binary:
    """The facts about one shared library."""

    format: str  # elf, pe or macho
    machine: str  # x86_64 or aarch64
    libraries: frozenset[str]  # loaded with it
    imports: frozenset[str]  # names that others must define
    exports: frozenset[str]
    oldest: tuple[int, ...] = ()  # the oldest glibc or macOS that serves it; () is any
    signed: bool = False  # has a code signature; read for macOS only


def read_binary(data: bytes) -> Binary:
    """Return the facts; ValueError for another format."""
    if data[:4] == b"\x7fELF":
        return read_elf(data)
    if data[:2] == b"MZ":
        return read_pe(data)
    if data[:4] == b"\xcf\xfa\xed\xfe":
        return read_macho(data)
    raise ValueError("not an extension for Linux, Windows or macOS")


def elf_exports(data: bytes) -> set[str]:
    """Return the names that an ELF file defines for others."""
    table = ELFFile(io.BytesIO(data)).get_section_by_name(".dynsym")
    if table is None:
        return set()
    return {s.name for s in table.iter_symbols() if s.name and s["st_shndx"] != "SHN_UNDEF"}


def read_elf(data: bytes) -> Binary:
    """Read a library of Linux."""
    elf = ELFFile(io.BytesIO(data))
    machine = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}.get(elf["e_machine"], "unknown")
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    imports = {s.name for s in symbols if s.name and s["st_shndx"] == "SHN_UNDEF"}
    libraries, versions = set(), [()]
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            libraries |= {t.needed for t in section.iter_tags() if t.entry.d_tag == "DT_NEEDED"}
        elif isinstance(section, GNUVerNeedSection):
            for _, needed in section.iter_versions():
                found = (re.match(r"GLIBC_([0-9.]+)", version.name) for version in needed)
                versions += [tuple(map(int, m[1].split(".")))[:2] for m in found if m]
    return Binary(
        "elf", machine, frozenset(libraries), frozenset(imports),
        frozenset(elf_exports(data)), max(versions),
    )  # fmt: skip


def text_at(data: bytes, start: int) -> str:
    """Return the zero-terminated text at an offset."""
    return data[start : data.index(b"\0", start)].decode()


def read_pe(data: bytes) -> Binary:
    """Read a 64-bit library of Windows."""
    header = struct.unpack_from("<I", data, 0x3C)[0] + 4
    machine, sections = struct.unpack_from("<HH", data, header)
    optional = header + 20
    table = optional + struct.unpack_from("<H", data, header + 16)[0]
    places = [struct.unpack_from("<IIII", data, table + 40 * i + 8) for i in range(sections)]

    def offset(address: int) -> int:
        for size, start, stored, position in places:
            if start <= address < start + max(size, stored):
                return address - start + position
        raise ValueError("an address outside of every section")

    directory = [struct.unpack_from("<II", data, optional + 112 + 8 * i) for i in range(14)]
    exports = set()
    if directory[0][0]:
        start = offset(directory[0][0])
        count, names = struct.unpack_from("<I4xI", data, start + 24)
        for i in range(count):
            address = struct.unpack_from("<I", data, offset(names) + 4 * i)[0]
            exports.add(text_at(data, offset(address)))
    libraries, imports = set(), set()
    start = offset(directory[1][0])
    while any(data[start : start + 20]):
        lookup, _, _, name, _ = struct.unpack_from("<5I", data, start)
        libraries.add(text_at(data, offset(name)))
        entry = offset(lookup)
        while value := struct.unpack_from("<Q", data, entry)[0]:
            if not value >> 63:  # by name, not by number
                imports.add(text_at(data, offset(value) + 2))
            entry += 8
        start += 20
    name = {0x8664: "x86_64", 0xAA64: "aarch64"}.get(machine, "unknown")
    return Binary("pe", name, frozenset(libraries), frozenset(imports), frozenset(exports))


def read_macho(data: bytes) -> Binary:
    """Read a 64-bit library of macOS for one processor."""
    processor, _, _, commands = struct.unpack_from("<iIII", data, 4)
    libraries, imports, exports = set(), set(), set()
    oldest: tuple[int, ...] = ()
    signed = False
    start = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<II", data, start)
        if command in (0xC, 0x80000018, 0x8000001F):  # load a library; weakly; exported again
            libraries.add(text_at(data, start + struct.unpack_from("<I", data, start + 8)[0]))
        elif command in (0x32, 0x24):  # LC_BUILD_VERSION, LC_VERSION_MIN_MACOSX
            version = struct.unpack_from("<I", data, start + (12 if command == 0x32 else 8))[0]
            oldest = version >> 16, version >> 8 & 255
        elif command == 0x1D:  # LC_CODE_SIGNATURE
            signed = True
        elif command == 2:  # LC_SYMTAB
            symbols, count, strings, _ = struct.unpack_from("<4I", data, start + 8)
            for i in range(count):
                name, kind = struct.unpack_from("<IB", data, symbols + 16 * i)
                if kind & 0xE0 or not kind & 1:  # for debuggers, or private
                    continue
                text = text_at(data, strings + name).removeprefix("_")
                if kind & 0x10 == 0:  # not private to the file that was linked
                    (exports if kind & 0xE else imports).add(text)
        start += size
    name = {0x01000007: "x86_64", 0x0100000C: "aarch64"}.get(processor, "unknown")
    return Binary(
        "macho", name, frozenset(libraries), frozenset(imports), frozenset(exports), oldest, signed
    )
