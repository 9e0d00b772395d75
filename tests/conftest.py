"""Fixtures of all tests: data and models where they exist, generated sounds, servers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import settings
from webserver import Site, serve

from deltakwt.core.config import KEYWORDS, KWT1
from deltakwt.core.native import available_isas
from deltakwt.data.speech_commands import split_of
from deltakwt.weights.folder import Weights, random_tensors, save_folder
from deltakwt.weights.registry import SHIPPED

# No deadline, because the machine may be busy; the same examples in every run.
settings.register_profile("deltakwt", deadline=None, derandomize=True)
settings.load_profile("deltakwt")

# A shell starts background jobs with SIGINT ignored, nohup with SIGHUP, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

PROJECT = Path(__file__).parent.parent
CLIPS = PROJECT / "examples" / "clips"

# Fixtures that take long to make: a report, a server, a browser, an installed library. With
# `pytest -n 2 --dist loadgroup` one process runs all tests that use one of them, so that it is
# made once and not in every process.
EXPENSIVE = ("report", "hostile_page", "explained", "postgresql", "page", "prefix")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of each expensive fixture into one group."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if group := next((name for name in EXPENSIVE if name in names), None):
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads or writes the user's cache or depends on the user's settings."""
    monkeypatch.setenv("DELTAKWT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DELTAKWT_MODEL", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(params=available_isas())
def isa(request: pytest.FixtureRequest) -> str:
    """Each instruction set of this machine."""
    return str(request.param)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with public data and the authors' model, named by DELTAKWT_SHARED."""
    folder = Path(os.environ.get("DELTAKWT_SHARED") or PROJECT.parent / "shared")
    if not (folder / "data").is_dir():
        pytest.skip(f"needs the public test data: DELTAKWT_SHARED ({folder}) is absent")
    return folder


@pytest.fixture(scope="session")
def arm_kwt1(shared: Path) -> Path:
    """The KWT authors' own KWT-1."""
    return shared / "models" / "arm-kwt1" / "non_stream.tflite"


@pytest.fixture(scope="session")
def trained(request: pytest.FixtureRequest) -> str:
    """A trained model: ours, or the authors' where ours is not shipped."""
    if (SHIPPED / "kwt-1" / "config.json").is_file():
        return "kwt-1"
    return str(request.getfixturevalue("arm_kwt1"))


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder of random weights in the shape of KWT-1."""
    folder = tmp_path_factory.mktemp("models") / "random"
    save_folder(folder, Weights(KWT1, random_tensors(KWT1), {"steps": 0}), card="# random\n")
    return folder


def name_in(split: str, word: str, number: int) -> str:
    """A file name whose speaker falls into `split`."""
    for speaker in range(10_000):
        name = f"{word}{number}{speaker:04x}_nohash_0.wav"
        if split_of(name) == split:
            return name
    raise AssertionError(f"no speaker found for {split}")


@pytest.fixture(scope="session")
def full_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder in the layout of v0.01 / v0.02: our clips, 3 per word in each split."""
    root = tmp_path_factory.mktemp("full") / "speech_commands_v0.02"
    for word in (*KEYWORDS, "marvin", "happy"):
        (root / word).mkdir(parents=True)
        sound, rate = soundfile.read(CLIPS / f"{word}.flac")
        for split in ("train", "val", "test"):
            for number in range(3):
                soundfile.write(root / word / name_in(split, word, number), sound, rate)
    (root / "_background_noise_").mkdir()
    hiss = np.random.default_rng(0).normal(0, 0.01, 3 * 16_000)
    soundfile.write(root / "_background_noise_" / "hiss.wav", hiss, 16_000)
    (root / "README.md").write_text("not a clip")
    return root


@pytest.fixture(scope="session")
def test_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder in the layout of the official test sets: our clips, 2 per class."""
    root = tmp_path_factory.mktemp("test") / "speech_commands_test_set_v0.02"
    hiss = np.random.default_rng(0).normal(0, 0.01, 16_000)
    for word in KEYWORDS:
        (root / word).mkdir(parents=True)
        for number in range(2):
            sound, rate = soundfile.read(CLIPS / f"{word}.flac")
            soundfile.write(root / word / f"{number:08x}_nohash_0.wav", sound, rate)
    for folder, sound in (("_unknown_", None), ("_silence_", hiss)):
        (root / folder).mkdir()
        for number, word in enumerate(("marvin", "happy")):
            samples = soundfile.read(CLIPS / f"{word}.flac")[0] if sound is None else sound
            # as in the official folders, the suffix is doubled
            path = root / folder / f"{word}_{number:08x}_nohash_0.wav.wav"
            soundfile.write(path, samples, 16_000)
    return root


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def in_process(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process. Use it where many short commands are run.

    It needs no seconds to start Python and to import what the command needs.
    """
    from deltakwt.cli import build
    from deltakwt.cli.running import run as run_line

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        line = list(map(str, arguments))
        monkeypatch.setattr(sys, "argv", ["deltakwt", *line])  # results state their command
        capfd.readouterr()
        code = run_line(build(), line)
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run


@pytest.fixture
def deltakwt() -> Run:
    """Run the installed `deltakwt` command (or, from a source tree, the module)."""
    script = Path(sys.executable).parent / "deltakwt"
    command = [str(script)] if script.exists() else [sys.executable, "-m", "deltakwt"]

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
        )

    return run


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket on which systemd would listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)
        yield sock


@pytest.fixture
def site() -> Iterator[Site]:
    """A web server on 127.0.0.1."""
    with serve() as made:
        yield made
