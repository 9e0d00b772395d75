"""SECURITY.md: every test that it names exists."""

from __future__ import annotations

import re

from conftest import PROJECT

PAGE = (PROJECT / "SECURITY.md").read_text()
TESTS = PROJECT / "tests"


def named_tests() -> set[str]:
    """Return `file` or `file::test` for all that the page names; `::test` repeats the file."""
    found, last = set(), ""
    for name in re.findall(r"`((?:[\w/]+\.py)?(?:::\w+)?)`", PAGE):
        if name.startswith("::"):
            name = last + name
        last = name.partition("::")[0]
        if last.rpartition("/")[2].startswith("test_"):
            found.add(name)
    return found


def test_every_test_of_the_page_exists() -> None:
    names = named_tests()
    assert len(names) > 35
    for name in names:
        file, _, function = name.partition("::")
        path = TESTS / file.removeprefix("tests/")
        assert path.is_file(), name
        assert not function or f"def {function}(" in path.read_text(), name


def test_every_finding_has_a_test() -> None:
    section = PAGE.split("## Defects that were found, and their tests")[1].split("## ")[0]
    rows = re.findall(r"^\| (\d+)\. .* \| (.*) \|$", section, re.M)
    assert len(rows) >= 16
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert all("test_" in tests for _, tests in rows)


def test_the_fuzzers_of_the_page_are_those_of_the_project() -> None:
    section = PAGE.split("## Fuzzing")[1].split("## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.M)
    targets = {path.stem for path in (PROJECT / "fuzz" / "targets").glob("*.py")}
    targets |= {path.stem for path in (PROJECT / "fuzz" / "native").glob("*.c")}
    assert sorted(listed) == sorted(targets)
