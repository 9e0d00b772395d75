"""Recordings inside the page: few, short and compressed."""

from __future__ import annotations

import base64
import io
from typing import Any

from deltakwt.core.config import SAMPLE_RATE
from deltakwt.report.run import Run

MOST_BYTES = 40_000  # of one clip


def sounds(run: Run, document: dict[str, Any], most: int) -> dict[str, str]:
    """Index of a changed clip -> its sound as a data: address. Lost decisions come first."""
    rows = [row for row in document["changes"]["rows"] if row["file"] != "digital zero"]
    order = {"lost": 0, "won": 1, "wrong anyway": 2}
    rows.sort(key=lambda row: order[row["outcome"]])
    made: dict[str, str] = {}
    for row in rows[:most]:
        address = encoded(run.sample.sound(row["index"]))
        if len(address) <= MOST_BYTES:
            made[str(row["index"])] = address
    document["changes"]["playable"] = len(made)
    return made


def encoded(sound: Any) -> str:
    """MP3 where libsndfile can write it, as every browser plays it; else FLAC."""
    import soundfile

    is_mp3 = "MP3" in soundfile.available_formats()
    kind, mime = ("MP3", "audio/mpeg") if is_mp3 else ("FLAC", "audio/flac")
    file = io.BytesIO()
    soundfile.write(file, sound, SAMPLE_RATE, format=kind)
    return f"data:{mime};base64,{base64.b64encode(file.getvalue()).decode()}"
