"""The installed C library: its package files, the example, model files, and their checks."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from shutil import which

import numpy as np
import pytest
import soundfile
from stride_models import SETTING, every_second_frame, strided

from deltakwt.audio import read_clip
from deltakwt.cli import build
from deltakwt.cli.running import run as run_command
from deltakwt.core.config import Config
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_scales import calibrate
from deltakwt.core.model import Model, load
from deltakwt.core.setting import Setting, Thresholds
from deltakwt.export.binary import model_file, write_model_file
from deltakwt.export.folder import int16_samples
from deltakwt.export.model import Export
from deltakwt.listen.decision import Decision
from deltakwt.listen.runner import StreamRunner
from deltakwt.listen.spotter import Spotter, decision_of
from deltakwt.weights.folder import random_tensors

PROJECT = Path(__file__).parents[2]
CLIPS, EXAMPLE = PROJECT / "examples" / "clips", PROJECT / "examples" / "c"
SMALL = Config(dim=8, heads=2, mlp=12, layers=2, labels=("_silence_", "yes", "naïve"))


def run(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, installed without Python, nanobind or a C++ compiler."""
    for tool in ("cmake", "cc", "pkg-config"):
        if not which(tool):
            pytest.skip(f"needs {tool}")
    folder = tmp_path_factory.mktemp("library")
    run("cmake", "-S", PROJECT, "-B", folder / "build", "-DDELTAKWT_PYTHON=OFF", CXX="/none")
    run("cmake", "--build", folder / "build")
    run("cmake", "--install", folder / "build", "--prefix", folder / "installed")
    return folder / "installed"


def compile_with_pkg_config(prefix: Path, source: Path, out: Path, *more: str) -> Path:
    (found,) = prefix.glob("lib*/pkgconfig")
    flags = run("pkg-config", "--cflags", "--libs", "deltakwt", PKG_CONFIG_PATH=str(found))
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", *more, source, "-o", out, *flags.split())
    return out


@pytest.fixture(scope="session")
def by_cmake(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    run("cmake", "-S", EXAMPLE, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder)
    return folder / "words"


@pytest.fixture(scope="session")
def model(trained: str) -> Model:
    return load(trained, arithmetic="float")


@pytest.fixture(scope="session")
def exported(trained: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_file(trained, tmp_path_factory.mktemp("file") / "model.bin", "f32")


def export_file(model: str, path: Path, weights: str) -> Path:
    given = ["export", "--model", model, "--target", "bin", "--weights", weights]
    assert run_command(build(), [*given, "--out", str(path)]) == 0
    return path


def library_path(prefix: Path) -> str:
    return str(next(prefix.glob("lib*")))


def wav(clip: str, folder: Path) -> tuple[Path, np.ndarray]:
    sound, rate = soundfile.read(CLIPS / f"{clip}.flac", dtype="int16")
    assert rate == 16_000
    path = folder / f"{clip}.wav"
    soundfile.write(path, sound, rate, subtype="PCM_16")
    return path, sound


@pytest.mark.parametrize("clip", ["yes", "left", "stop", "silence", "sentence"])
def test_the_example_prints_the_words_of_the_spotter(
    clip: str, prefix: Path, by_cmake: Path, model: Model, exported: Path, tmp_path: Path
) -> None:
    words = compile_with_pkg_config(prefix, EXAMPLE / "words.c", tmp_path / "words")
    path, samples = wav(clip, tmp_path)
    spotter = Spotter(model)
    events = [*spotter.push(samples.astype(np.float32) / 32768), *spotter.flush()]
    for program in (by_cmake, words):
        printed = run(program, exported, path, LD_LIBRARY_PATH=library_path(prefix))
        found = [line.split() for line in printed.splitlines()]
        assert [label for _, _, label, _ in found] == [event.label for event in events]
        for (start, end, _, score), event in zip(found, events, strict=True):
            assert float(start) == pytest.approx(event.start, abs=0.006)
            assert float(end) == pytest.approx(event.end, abs=0.006)
            assert float(score) == pytest.approx(event.score, abs=2e-6)
    assert events or clip != "sentence"


@pytest.mark.parametrize(("arithmetic", "weights"), [("float", "f32"), ("fixed", "int16")])
def test_logits_have_the_bits_of_python(
    arithmetic: str, weights: str, prefix: Path, trained: str, tmp_path: Path
) -> None:
    model = load(trained, arithmetic=arithmetic)
    exported = export_file(trained, tmp_path / "model.bin", weights)
    assert_logits_have_the_bits(model, decision_of(model), exported, prefix, tmp_path)


@pytest.mark.parametrize("kind", ["f32", "int16"])
def test_logits_of_a_model_with_a_stride_have_the_bits_of_python(
    kind: str, prefix: Path, tmp_path: Path
) -> None:
    known, scales = every_second_frame("kwt-0")
    config, tensors, decision = known.config, known.tensors, Decision(hop=0.06, unknown_bias=0.5)
    given = {"config": config, "tensors": tensors, "setting": SETTING, "decision": decision}
    export = small(**given, kind=kind, scales=None if kind == "f32" else scales)
    write_model_file(export, tmp_path / "model.bin")
    model = Model(config, Engine(config, tensors) if kind == "f32" else export.engine())
    model.setting = SETTING
    assert_logits_have_the_bits(model, decision, tmp_path / "model.bin", prefix, tmp_path)


def assert_logits_have_the_bits(
    model: Model, decision: Decision, exported: Path, prefix: Path, tmp_path: Path
) -> None:
    source = PROJECT / "tests" / "native" / "print_logits.c"
    program = compile_with_pkg_config(prefix, source, tmp_path / "print_logits")
    for clip in ("yes", "no", "marvin", "silence"):
        samples = int16_samples(read_clip(CLIPS / f"{clip}.flac"))
        samples.tofile(tmp_path / clip)
        printed = run(program, exported, tmp_path / clip, LD_LIBRARY_PATH=library_path(prefix))
        bits = {
            words[0]: np.array([int(word, 16) for word in words[1:]], np.uint32).view(np.float32)
            for words in map(str.split, printed.splitlines())
        }
        sound = samples.astype(np.float32) / 32768
        np.testing.assert_array_equal(bits["clip"], model.classify(sound).logits)
        runner = StreamRunner(model, model.setting, decision, every_window=False)
        stream = runner.push(np.concatenate([sound, sound]))
        np.testing.assert_array_equal(bits["stream"], stream[-1])


def test_the_headers_are_cpp_too(prefix: Path, tmp_path: Path) -> None:
    if not which("c++"):
        pytest.skip("needs a C++ compiler")
    source = tmp_path / "use.cpp"
    source.write_text("#include <deltakwt_spotter.h>\nint main() { return dk_isa_best() < 0; }\n")
    library = library_path(prefix)
    flags = (f"-I{prefix}/include", source, f"{library}/libdeltakwt.a", "-lm")
    run("c++", "-std=c++11", "-Wall", "-Werror", *flags, "-o", tmp_path / "use")
    done = subprocess.run([tmp_path / "use"], check=False)
    assert done.returncode == 0


def small(**changes: object) -> Export:
    setting = Setting(Thresholds.parse("0.1_0.1_0.1_0.05_0.001_0.05"), name="small")
    values = {"name": "small", "config": SMALL, "tensors": random_tensors(SMALL), "kind": "f32"}
    values |= {"setting": setting, "decision": Decision(unknown_bias=0.75)}
    return Export(**(values | changes))  # type: ignore[arg-type]


def test_the_file_is_as_documented() -> None:
    data = model_file(small())
    magic, version, mark, size, crc, header = struct.unpack_from("<8sIIQII", data)
    assert (magic, version, mark, size, header) == (b"DELTAKWT", 1, 0x01020304, len(data), 160)
    assert crc == zlib.crc32(data[32:])
    assert struct.unpack_from("<8I", data, 32) == (8, 2, 12, 2, 3, 98, 40, 1)
    text, on, thresholds, weights = struct.unpack_from("<4Q", data, 128)
    assert data[text:].startswith("small\0small\0_silence_\0yes\0naïve\0".encode())
    assert np.frombuffer(data, "<f4", 3, on)[0] == 2
    assert np.frombuffer(data, "<f4", 9, thresholds)[0] == np.float32(0.1)
    assert weights % 64 == 0
    embed = random_tensors(SMALL)["embed.weight"]
    np.testing.assert_array_equal(np.frombuffer(data, "<f4", embed.size, weights), embed.ravel())


def test_the_file_holds_the_stride() -> None:
    config = strided(2)
    data = model_file(small(config=config, tensors=random_tensors(config)))
    assert struct.unpack_from("<8I", data, 32) == (16, 2, 24, 2, 12, 49, 40, 0x101)
    assert struct.unpack_from("<3I", data, 80)[1:] == (10, 18)  # steps of 10 ms, frames
    odd = small(config=config, tensors=random_tensors(config), decision=Decision(hop=0.05))
    with pytest.raises(DeltakwtError, match="hop = 0.05: must be a multiple of 0.02"):
        model_file(odd)


def test_text_that_c_would_refuse_is_refused(tmp_path: Path) -> None:
    odd = Config(8, 2, 12, 2, labels=("a\nb", "c"))
    with pytest.raises(DeltakwtError, match="control character"):
        write_model_file(small(config=odd, tensors=random_tensors(odd)), tmp_path / "x.bin")
    with pytest.raises(DeltakwtError, match="is a folder"):
        write_model_file(small(), tmp_path)
    assert not list(tmp_path.iterdir())


def small_integers() -> Export:
    """The same in fixed point."""
    tensors = random_tensors(SMALL)
    tensors["embed.weight"] = tensors["embed.weight"] / 32  # silence has large features
    features = np.random.default_rng(0).normal(size=(4, SMALL.frames, SMALL.features))
    scales = calibrate(SMALL, tensors, features.astype(np.float32))
    return small(kind="int16", tensors=tensors, scales=scales)


def test_2000_changed_files_are_refused_or_run(tmp_path: Path) -> None:
    """Under the sanitizers, with the scalar kernels only, which build quickly."""
    if sys.platform != "linux" or not which("cc"):
        pytest.skip("needs Linux and a C compiler")
    native = PROJECT / "native"
    places = ("*.c", "fixed/*.c", "kernels/*scalar.c")
    sources = [path for place in places for path in sorted((native / "src").glob(place))]
    flags = ("-std=c11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    program = tmp_path / "fuzz"
    fuzz = PROJECT / "tests" / "native" / "fuzz_model.c"
    run("cc", *flags, f"-I{native}/include", *sources, fuzz, "-lm", "-o", program)
    halved = small(config=strided(2), tensors=random_tensors(strided(2)))
    for export in (small(), small_integers(), halved):
        write_model_file(export, tmp_path / "small.bin")
        printed = run(program, tmp_path / "small.bin", 2000)
        assert printed.endswith("of 2000 ran, 0 failures\n")
        assert 20 < int(printed.split()[0]) < 1500  # many changes are harmless, many are refused


def wav_bytes(*chunks: tuple[bytes, bytes]) -> bytes:
    """A RIFF file of these chunks."""
    body = b"".join(
        name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
        for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


PCM = struct.pack("<HHIIHH", 1, 1, 16_000, 32_000, 2, 16)
GUID = b"\x01\0\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"  # PCM
EXTENSIBLE = struct.pack("<H", 0xFFFE) + PCM[2:] + struct.pack("<HHI", 22, 16, 4) + GUID
SAMPLES = struct.pack("<4h", 1, -2, 300, -400)
STEREO = struct.pack("<HHIIHH", 1, 2, 16_000, 64_000, 4, 16)


@pytest.fixture(scope="module")
def wav_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prints the samples of a WAV file, after it has read damaged copies of it (sanitizers)."""
    if sys.platform != "linux" or not which("cc"):
        pytest.skip("needs Linux and a C compiler")
    program, native = tmp_path_factory.mktemp("wav") / "wav", PROJECT / "native"
    flags = ("-std=c11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    sources = (PROJECT / "tests" / "native" / "fuzz_wav.c", native / "src" / "wav.c")
    run("cc", *flags, f"-I{native}/include", *sources, "-o", program)
    return program


@pytest.mark.parametrize(
    ("data", "printed"),
    [
        (wav_bytes((b"fmt ", PCM), (b"data", SAMPLES)), "1 -2 300 -400"),
        (wav_bytes((b"fmt ", EXTENSIBLE), (b"data", SAMPLES)), "1 -2 300 -400"),
        (wav_bytes((b"LIST", b"odd"), (b"fmt ", PCM), (b"data", SAMPLES)), "1 -2 300 -400"),
        (wav_bytes((b"fmt ", PCM), (b"data", SAMPLES))[:-3], "1 -2"),  # ends early
        (wav_bytes((b"fmt ", STEREO), (b"data", SAMPLES)), "refused"),
        (wav_bytes((b"data", SAMPLES), (b"fmt ", PCM)), "refused"),
        (wav_bytes((b"fmt ", PCM[:14]), (b"data", SAMPLES)), "refused"),
        (wav_bytes((b"fmt ", PCM)), "refused"),
        (b"not a WAV file", "refused"),
    ],
)
def test_wav_files_are_read_within_their_bounds(
    data: bytes, printed: str, wav_program: Path, tmp_path: Path
) -> None:
    path = tmp_path / "sound.wav"
    path.write_bytes(data)
    assert run(wav_program, path).strip() == printed
