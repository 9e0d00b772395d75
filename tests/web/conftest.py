"""A served page with a model and sounds, and what Python finds in them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import CLIPS

from deltakwt.core.model import Model, load
from deltakwt.explore.server import Server
from deltakwt.explore.site import Site
from deltakwt.listen.decision import Event


@pytest.fixture(scope="session")
def model(trained: str) -> Model:
    return load(trained, arithmetic="fixed")  # as the page computes


@pytest.fixture(scope="session")
def sentence_events(model: Model) -> list[Event]:
    """What Python finds in the example sentence."""
    found = model.spot(CLIPS / "sentence.flac").events
    assert len(found) > 1
    return found


@pytest.fixture(scope="session")
def server(trained: str) -> Iterator[Server]:
    """A running server with the sentence and a clip."""
    sounds = [CLIPS / "sentence.flac", CLIPS / "yes.flac"]
    with serve(Site.of([trained], sounds)) as made:
        yield made


class serve:  # noqa: N801
    """Runs a server in a thread."""

    def __init__(self, site: Site, live: object = None) -> None:
        self.server = Server(site, live)  # type: ignore[arg-type]

    def __enter__(self) -> Server:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self.server

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def wave(tmp_path: Path) -> Path:
    """One second of silence, a word, and a second of silence: as from a microphone."""
    import numpy as np
    import soundfile

    word, rate = soundfile.read(CLIPS / "stop.flac", dtype="float32")
    pause = np.zeros(rate, np.float32)
    path = tmp_path / "microphone.wav"
    soundfile.write(path, np.concatenate([pause, word, pause, pause]), rate, subtype="PCM_16")
    return path
