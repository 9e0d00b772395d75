"""Write the software bill of materials of a wheel, as CycloneDX 1.5 JSON, beside the wheel.

It lists every file of the wheel with its SHA-256 and licence, the libraries that are linked into
the compiled extension, and the packages that the wheel requires. The same wheel gives the same
document. A binary that this program does not know is an error, so that a library which a build
adds (as auditwheel does) cannot go unnoticed. Usage: python scripts/sbom.py WHEEL...
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from typing import Any

OWN = "Apache-2.0"
LINKED = {
    "nanobind": ("BSD-3-Clause", "pkg:pypi/nanobind@{}"),
    "robin-map": ("MIT", "pkg:github/Tessil/robin-map@v{}"),
}
EXTENSION = re.compile(r"deltakwt/_native\.[\w-]+(\.[\w-]+)*\.so|deltakwt/_native\.so")
BINARY = re.compile(r"\.(so|dylib|dll|pyd|a|o)(\.[\d.]+)?$")
NOTICES = "LICENSE-THIRD-PARTY"


class Unknown(Exception):
    """The wheel holds something whose origin or licence is not known."""


def sbom(wheel: Path) -> dict[str, Any]:
    """Return the document of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(name for name in archive.namelist() if not name.endswith("/"))
        info = next(name.rpartition("/")[0] for name in names if name.endswith("/METADATA"))
        metadata = BytesParser().parsebytes(archive.read(f"{info}/METADATA"))
        linked = json.loads(archive.read("deltakwt/linked.json"))
        files = [file_component(name, archive.read(name)) for name in names]
        notices = [name for name in names if name.endswith(f"/{NOTICES}")]
        if not notices or not all(name in archive.read(notices[0]).decode() for name in linked):
            raise Unknown(f"{wheel}: {NOTICES} does not name all of {', '.join(linked)}")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest(wheel.read_bytes()))}",
        "version": 1,
        "metadata": {"component": wheel_component(wheel, metadata)},
        "components": [
            *(linked_component(name, version) for name, version in sorted(linked.items())),
            *required_components(metadata),
            *files,
        ],
    }


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def hashes(content: bytes) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digest(content)}]


def wheel_component(wheel: Path, metadata: Message) -> dict[str, Any]:
    name, version = metadata["Name"], metadata["Version"]
    return {
        "type": "library",
        "bom-ref": wheel.name,
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}?file_name={wheel.name}",
        "hashes": hashes(wheel.read_bytes()),
        "licenses": [{"license": {"id": OWN}}],
    }


def linked_component(name: str, version: str) -> dict[str, Any]:
    """Return a library that is linked into the extension."""
    if name not in LINKED or not re.fullmatch(r"\d+(\.\d+)+", version):
        raise Unknown(f"deltakwt/linked.json: {name} {version}: no such library, or no version")
    licence, address = LINKED[name]
    return {
        "type": "library",
        "name": name,
        "version": version,
        "scope": "required",
        "purl": address.format(version),
        "licenses": [{"license": {"id": licence}}],
    }


def required_components(metadata: Message) -> list[dict[str, Any]]:
    """Return the packages that pip installs with the wheel; those of an extra are optional."""
    found: dict[str, dict[str, Any]] = {}
    for line in metadata.get_all("Requires-Dist") or []:
        name = re.split(r"[\s\[<>=!~;(]", line, maxsplit=1)[0].lower()
        if name == metadata["Name"]:  # an extra that consists of others
            continue
        scope = "optional" if "extra ==" in line else "required"
        if name not in found or scope == "required":
            wanted = [{"name": "requirement", "value": line}]
            found[name] = {
                "type": "library",
                "name": name,
                "scope": scope,
                "purl": f"pkg:pypi/{name}",
                "properties": wanted,
            }
    return [found[name] for name in sorted(found)]


def file_component(name: str, content: bytes) -> dict[str, Any]:
    """Return one file of the wheel."""
    licence = OWN
    if EXTENSION.fullmatch(name):
        licence = " AND ".join([OWN, *(licence for licence, _ in LINKED.values())])
    elif BINARY.search(name):
        raise Unknown(f"{name}: a binary of unknown origin; add it to scripts/sbom.py")
    elif name.endswith(f"/{NOTICES}"):
        licence = " AND ".join(licence for licence, _ in LINKED.values())
    return {
        "type": "file",
        "name": name,
        "hashes": hashes(content),
        "licenses": [{"expression": licence}],
    }


def main() -> int:
    for name in sys.argv[1:]:
        wheel = Path(name)
        try:
            document = sbom(wheel)
        except (Unknown, KeyError) as error:
            print(f"sbom: {wheel.name}: {error}", file=sys.stderr)
            return 1
        out = wheel.with_suffix(".cdx.json")
        out.write_text(json.dumps(document, indent=2) + "\n")
        print(f"{out}: {len(document['components'])} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
