"""The two files of a review: saved events, and the answers about them."""

from __future__ import annotations

from pathlib import Path

from deltakwt.core.errors import DeltakwtError
from deltakwt.evaluate.review import REVIEWED, read_answers
from deltakwt.listen.saved import INDEX, is_plain_label, read_saved


def read(data: bytes, folder: Path) -> None:
    """Read the bytes as saved events and as answers; both must be safe as names of files."""
    (folder / INDEX).write_bytes(data)
    (folder / REVIEWED).write_bytes(data)
    try:
        answers = read_answers(folder)
    except DeltakwtError:
        answers = {}
    assert all(map(is_plain_label, answers.values()))
    for event in read_saved(folder):
        assert Path(event.file).name == event.file
        assert is_plain_label(event.label)
        assert answers[event.file]  # every event is also a well-formed answer
