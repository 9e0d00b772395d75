"""Commands through their real entry point: output, exit codes, help and progress."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conftest import CLIPS, Run
from test_audio import broken_files
from webserver import Site

import deltakwt as package
from deltakwt.cli import VERBS, build, common
from deltakwt.cli.common import run
from deltakwt.core.config import KEYWORDS, LABELS
from deltakwt.weights.registry import SHIPPED


def one_line(text: str) -> bool:
    return text.startswith("deltakwt: ") and text.count("\n") == 1


# ---------------------------------------------------------------- spot


def test_spot_prints_a_table(deltakwt: Run, trained: str) -> None:
    done = deltakwt("spot", CLIPS / "yes.flac", CLIPS / "silence.flac", "--model", trained)
    assert done.returncode == 0
    assert done.stderr == ""
    assert all(word in done.stdout for word in ("file", "word", "score", "ms", "yes.flac"))


def test_spot_json(deltakwt: Run, arm_kwt1: Path) -> None:
    files = [str(CLIPS / f"{word}.flac") for word in (*KEYWORDS, "marvin", "silence")]
    done = deltakwt("spot", *files, "--model", arm_kwt1, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert [entry["file"] for entry in found] == files
    for word, entry in zip(KEYWORDS, found, strict=False):
        (event,) = entry["events"]
        assert event["label"] == word
        assert 0 < event["score"] <= 1
        assert (event["start"], event["end"]) == (0, 1)
        assert entry["ms"] > 0
    assert [entry["events"] for entry in found[10:]] == [[], []]


def test_spot_finds_the_words_of_a_longer_recording(deltakwt: Run, trained: str) -> None:
    done = deltakwt("spot", CLIPS / "sentence.flac", "--json", DELTAKWT_MODEL=trained)
    (entry,) = json.loads(done.stdout)
    said = {"go": 0.6, "left": 2.0, "stop": 4.8, "yes": 6.2}  # examples/make_clips.py
    assert [event["label"] for event in entry["events"]] == list(said)
    for event in entry["events"]:
        middle = said[event["label"]] + 0.25
        assert event["start"] - 0.2 < middle < event["end"] + 0.2


@pytest.mark.parametrize("how", ["six", "eight", "per layer"])
def test_spot_counts_macs_and_bytes_with_thresholds(
    deltakwt: Run, random_model: Path, how: str
) -> None:
    text = {
        "six": "0.2_0.2_0.2_0.05_0.001_0.05",
        "eight": "0.2_0.2_0.2_0.05_0.001_0.05_0.3_0.1",
        "per layer": "_".join([",".join(["0.1"] * 12)] * 6),
    }[how]
    arguments = ("--model", random_model, "--thresholds", text, "--json", "--full")
    done = deltakwt("spot", CLIPS / "yes.flac", *arguments)
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads(done.stdout)
    macs = entry["macs"]
    assert 0 < macs["mhsa_percent"] < 100
    assert 0 < macs["model_percent"] < 100
    assert set(macs["sites"]) == {"xw", "qkt", "sv", "proj", "mlp_in", "mlp_out"}
    assert len(macs["layers"]) == 12
    assert entry["bytes"]["total"]["bitmap"] < entry["bytes"]["total"]["dense"]


def test_spot_reports_bad_files_and_goes_on(
    deltakwt: Run, random_model: Path, tmp_path: Path
) -> None:
    bad = broken_files(tmp_path)
    files = [tmp_path / name for name in bad]
    done = deltakwt("spot", *files, CLIPS / "yes.flac", "--model", random_model, "--json")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == len(bad)
    for line, file, reason in zip(lines, files, bad.values(), strict=True):
        assert line.startswith(f"deltakwt: {file}: ")
        assert reason in line
    found = json.loads(done.stdout)
    assert [("error" in entry) for entry in found] == [True] * len(bad) + [False]
    done = deltakwt("spot", *files, "--model", random_model)
    assert done.returncode == 2
    assert done.stdout == ""


@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (96_000, 1), (44_100, 8)])
def test_spot_takes_any_rate_and_channels(
    deltakwt: Run, trained: str, tmp_path: Path, rate: int, channels: int
) -> None:
    import soxr

    word, _ = soundfile.read(CLIPS / "left.flac", dtype="float32")
    sound = soxr.resample(word, 16_000, rate)
    soundfile.write(tmp_path / "a.wav", np.repeat(sound[:, None], channels, axis=1), rate)
    (entry,) = json.loads(deltakwt("spot", tmp_path / "a.wav", "-m", trained, "--json").stdout)
    assert [event["label"] for event in entry["events"]] == (["left"] if rate > 8_000 else ANY)


class _Any:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, list)

    __hash__ = None  # type: ignore[assignment]


ANY = _Any()  # 8 kHz lacks the upper half of what the models listen to

# ---------------------------------------------------------------- eval


def test_eval_json(deltakwt: Run, trained: str, test_set: Path) -> None:
    command = ("eval", "--model", trained, "--data", test_set, "--json")
    done = deltakwt(*command, "--profile", "dense")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["clips"] == 24
    assert found["accuracy"] == sum(found["confusion"][label][label] for label in LABELS) / 24
    assert found["accuracy"] > 0.9
    assert found["per_class"]["yes"] == {"accuracy": 1.0, "clips": 2}
    assert found["seconds"] > 0
    assert (found["split"], found["silence"], found["seed"]) == ("test", "zero", 0)
    assert "macs" not in found
    usual = json.loads(deltakwt(*command).stdout)  # as the model is set: accurate
    assert usual["accuracy"] > 0.9
    assert 10 < usual["macs"]["model_percent"] < 40


def test_eval_with_thresholds_counts_by_class(deltakwt: Run, trained: str, full_set: Path) -> None:
    done = deltakwt(
        *("eval", "--model", trained, "--data", full_set, "--split", "val", "--silence", "noise"),
        *("--thresholds", "0.2_0.2_0.2_0.05_0.001_0.05_0.3_0.1", "--threads", "1", "--json"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["clips"] == 36
    assert 0 < found["macs"]["model_percent"] < 60
    mean = sum(c["clips"] * c["macs"]["mhsa_percent"] for c in found["per_class"].values()) / 36
    assert found["macs"]["mhsa_percent"] == pytest.approx(mean)
    assert found["bytes"]["total"]["dense"] > found["per_class"]["yes"]["bytes"]["total"]["bitmap"]


def test_eval_prints_a_table(deltakwt: Run, random_model: Path, test_set: Path) -> None:
    done = deltakwt(
        *("eval", "--model", random_model, "--data", test_set, "--limit", "10"),
        *("--thresholds", "0.2_0.2_0.2_0.05_0.001_0.05"),
    )
    assert done.returncode == 0, done.stderr
    assert "all MACs" in done.stdout
    assert "of the dense bytes" in done.stdout


def test_eval_keeps_a_manifest(
    deltakwt: Run, random_model: Path, full_set: Path, tmp_path: Path
) -> None:
    arguments = ("eval", "--model", random_model, "--data", full_set, "--json", "--limit", "9")
    kept = ("--manifest", tmp_path / "m.json")
    first = json.loads(deltakwt(*arguments, *kept, "--seed", "5").stdout)
    again = json.loads(deltakwt(*arguments, *kept, "--seed", "6").stdout)
    assert again["seed"] == 5
    assert again["confusion"] == first["confusion"]


def test_eval_skips_bad_clips_and_says_so(
    deltakwt: Run, random_model: Path, test_set: Path, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(test_set, tmp_path / "data")
    (tmp_path / "data" / "yes" / "00000000_nohash_0.wav").write_bytes(b"nonsense")
    done = deltakwt("eval", "--model", random_model, "--data", tmp_path / "data", "--json")
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert json.loads(done.stdout)["clips"] == 23
    assert json.loads(done.stdout)["failed"][0]["file"] == "yes/00000000_nohash_0.wav"


# ---------------------------------------------------------------- models, data, doctor


def test_models_list_show_import(deltakwt: Run, arm_kwt1: Path, tmp_path: Path) -> None:
    names = {entry["name"] for entry in json.loads(deltakwt("models", "list", "--json").stdout)}
    assert {"arm-kwt-1", "arm-kwt-2", "arm-kwt-3"} <= names
    done = deltakwt("models", "import", arm_kwt1, "--out", tmp_path / "arm")
    assert done.returncode == 0, done.stderr
    shown = json.loads(deltakwt("models", "show", tmp_path / "arm", "--json").stdout)
    assert shown["parameters"] == 607_308
    assert shown["labels"] == list(LABELS)
    again = deltakwt("models", "import", arm_kwt1, "--out", tmp_path / "arm")
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert "607,308" in deltakwt("models", "show", arm_kwt1).stdout


def test_a_shipped_model_shows_what_its_profiles_do(deltakwt: Run) -> None:
    shown = " ".join(deltakwt("models", "show", "kwt-3").stdout.split())
    profiles = json.loads((SHIPPED / "kwt-3" / "profiles.json").read_text())["profiles"]
    measured = profiles["accurate"]["measured"]
    assert (
        "profile accurate (default) thresholds for each layer, front end smooth_2_0.2,"
        f" accuracy {measured['accuracy']:.2f}%, {measured['macs_percent']:.2f}% of the MACs of"
        " 42% words, 4% unknown, 4% zero, 50% noise" in shown
    )


def test_models_pull(
    deltakwt: Run, site: Site, arm_kwt1: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTAKWT_MODELS_URL", site.url)
    done = deltakwt("models", "pull", "arm-kwt-1")
    assert done.returncode == 1
    assert "404" in done.stderr
    path = "/models_data_v2_12_labels/kwt1/tflite_non_stream/non_stream.tflite"
    site.files[path] = b"TFL3 but not theirs"
    done = deltakwt("models", "pull", "arm-kwt-1")
    assert done.returncode == 1
    assert "git blob id differs" in done.stderr
    assert "not pulled yet" in deltakwt("spot", CLIPS / "yes.flac", "-m", "arm-kwt-1").stderr
    site.files[path] = arm_kwt1.read_bytes()
    site.cut_after = 1_000_000
    done = deltakwt("models", "pull", "arm-kwt-1", "--json")
    assert done.returncode == 0, done.stderr
    folder = Path(json.loads(done.stdout)["path"])
    assert folder == tmp_path / "cache" / "models" / "arm-kwt-1"
    assert [wanted for _, wanted in site.requests[-2:]] == [None, "bytes=1000000-"]
    (entry,) = json.loads(deltakwt("spot", CLIPS / "yes.flac", "-m", "arm-kwt-1", "--json").stdout)
    assert entry["events"][0]["label"] == "yes"
    assert list((tmp_path / "cache" / "downloads").iterdir()) == []


def test_data_get_and_info(deltakwt: Run, site: Site, test_set: Path, tmp_path: Path) -> None:
    import io
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(test_set, ".")
    site.files["/speech_commands_test_set_v0.02.tar.gz"] = packed.getvalue()
    site.files["/speech_commands_v0.01.tar.gz"] = packed.getvalue()
    site.cut_after = 1000
    arguments = ("data", "get", "test-v0.02", "--out", tmp_path / "d", "--json")
    done = deltakwt(*arguments, DELTAKWT_DATA_URL=site.url)
    assert done.returncode == 0, done.stderr
    assert "CC BY 4.0" in done.stderr
    folder = Path(json.loads(done.stdout)["path"])
    again = deltakwt(*arguments, DELTAKWT_DATA_URL=site.url)
    assert json.loads(again.stdout)["new"] is False
    assert [path.name for path in (tmp_path / "d").iterdir()] == [folder.name]
    info = json.loads(deltakwt("data", "info", folder, "--json").stdout)
    assert info["clips"] == 24
    assert "official test set" in deltakwt("data", "info", folder).stdout
    wrong = deltakwt("data", "get", "v0.01", "--out", tmp_path / "d", DELTAKWT_DATA_URL=site.url)
    assert wrong.returncode == 1
    assert "checksum differs" in wrong.stderr
    assert [path.name for path in (tmp_path / "d").iterdir()] == [folder.name]


def test_doctor(deltakwt: Run) -> None:
    done = deltakwt("doctor", "--json")
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout)
    assert found["ok"]
    assert found["version"] == package.__version__
    assert found["kernels"][0] == "scalar"
    assert len(found["self_test"]) >= 1 + len(found["kernels"])
    forced = json.loads(deltakwt("doctor", "--json", DELTAKWT_ISA="scalar").stdout)
    assert forced["chosen_kernels"] == "scalar"
    assert "ok: MFCC" in deltakwt("doctor").stdout


# ---------------------------------------------------------------- help, options of all commands


def test_version_and_help(deltakwt: Run) -> None:
    assert deltakwt("--version").stdout == f"deltakwt {package.__version__}\n"
    shown = deltakwt("--help")
    assert shown.returncode == 0
    for verb in VERBS:
        assert f"\n  {verb} " in shown.stdout
    assert "bool" not in shown.stdout
    assert deltakwt("-h").stdout == shown.stdout
    bare = deltakwt()
    assert (bare.returncode, bare.stdout, bare.stderr) == (0, shown.stdout, "")


def test_h_is_help_for_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (*VERBS, "models show", "models pull", "data get"):
        assert run(build(), [*verb.split(), "-h"]) == 0
        short = capsys.readouterr().out
        assert short.startswith(f"Usage: deltakwt {verb} ")
        assert run(build(), [*verb.split(), "--help"]) == 0
        assert capsys.readouterr().out == short
    assert run(build(), ["models"]) == 0
    assert "Usage: deltakwt models" in capsys.readouterr().out


def test_help_is_quick() -> None:
    """Processor time of the whole process, so that a busy machine does not matter."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "deltakwt", "--help"], capture_output=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.3


def test_only_the_module_of_the_wanted_verb_is_imported() -> None:
    code = (
        "import sys; sys.argv = ['deltakwt', '-v', 'doctor', '-h']\n"
        "from deltakwt import cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('deltakwt.cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("['deltakwt.cli.common', 'deltakwt.cli.doctor']\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(deltakwt: Run, shell: str) -> None:
    shown = deltakwt("--show-completion", shell)
    assert shown.returncode == 0
    assert "_DELTAKWT_COMPLETE" in shown.stdout
    asked = deltakwt(_DELTAKWT_COMPLETE="complete_bash", COMP_WORDS="deltakwt do", COMP_CWORD="1")
    assert asked.stdout.split() == ["doctor"]


def test_verbose_tells_what_was_loaded_and_quiet_shows_results_only(
    capsys: pytest.CaptureFixture[str], random_model: Path
) -> None:
    command = ["spot", str(CLIPS / "yes.flac"), "--model", str(random_model), "--json"]
    assert run(build(), [*command, "-v"]) == 0
    verbose = capsys.readouterr()
    assert str(random_model) in verbose.err
    assert "12 layers" in verbose.err
    assert run(build(), ["-q", *command]) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    assert json.loads(quiet.out)[0]["file"] == json.loads(verbose.out)[0]["file"]


def test_progress_is_lines_on_stderr_where_that_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "_level", common.USUAL)
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(common.time, "monotonic", lambda: next(clock))
    with common.progress("evaluating [/b]\x1b") as bar:
        for done in range(10):
            bar.update(done, 10)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3  # every 6 of 20 seconds
    assert lines[0] == "deltakwt: evaluating [/b]\\x1b: 2 of 10 (20%), about 24 s left"
    with common.progress("download", "bytes") as bar:
        for done in range(0, 4_000_000, 1_000_000):
            bar.update(done)
    assert capsys.readouterr().err == "deltakwt: download: 2.0 MB\n"


# ---------------------------------------------------------------- odd files and text


def test_a_closed_pipe_ends_the_command_silently(random_model: Path) -> None:
    files = [str(path) for path in CLIPS.glob("*.flac")]
    command = [sys.executable, "-m", "deltakwt", "spot", *files, "-m", str(random_model), "--json"]
    process = subprocess.Popen(
        [*command, "--thresholds", "0.2_0.2_0.2_0.05_0.001_0.05"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"[\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0


def test_odd_file_names_do_not_stop_the_others(random_model: Path, tmp_path: Path) -> None:
    good = (CLIPS / "yes.flac").read_bytes()
    names = [b"caf\xe9.flac", b"[/b].flac", b"[red]a.flac", b"\x1b[31m.flac", b"two\nlines.flac"]
    paths = [os.fsencode(tmp_path) + b"/" + name for name in names]
    (tmp_path / "[").mkdir()  # the folder of "[/b].flac"
    for path in paths:
        with open(path, "wb") as file:
            file.write(good)
    bad = [b"a" * 300 + b".flac", b"missing\x1b]0;title\x07.flac"]
    command = [sys.executable, "-m", "deltakwt", "spot", "-m", str(random_model)]
    done = subprocess.run([*command, *bad, *paths], capture_output=True, timeout=120)
    assert done.returncode == 1
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 2
    assert "cannot be read: File name too long" in lines[0]
    assert "missing\\x1b]0;title\\x07.flac: no such file" in lines[1]
    shown = done.stdout.decode()
    for name in ("caf\\xe9.flac", "[/b].flac", "[red]a.flac", "\\x1b[31m.flac", "two\\nlines.flac"):
        assert name in shown
    assert "\x1b" not in shown
    done = subprocess.run([*command, *bad, *paths, b"--json"], capture_output=True, timeout=120)
    assert [("error" in entry) for entry in json.loads(done.stdout)] == [True] * 2 + [False] * 5


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_spot_refuses_what_is_no_file(
    deltakwt: Run, random_model: Path, tmp_path: Path, kind: str
) -> None:
    path = Path("/dev/zero")
    if kind == "fifo":
        path = tmp_path / "pipe.wav"
        os.mkfifo(path)
    done = deltakwt("spot", path, "-m", random_model)
    assert done.returncode == 2
    assert one_line(done.stderr)
    assert f"{path}: not a regular file" in done.stderr


def test_foreign_text_is_escaped_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    rows = common.table("[b]title\x1b", "[i]one", "two\x07")
    rows.add_row("[/b]", "\x1b[2J\u202e")
    common.console().print(rows)
    common.say("label\x9b")
    common.fail("reason\r\x1b[K")
    shown = capsys.readouterr()
    for text in ("[b]title\\x1b", "[i]one", "two\\x07", "[/b]", "\\x1b[2J\\u202e", "label\\x9b"):
        assert text in shown.out
    assert not set("\x1b\x07\u202e\x9b\r") & set(shown.out + shown.err)


def test_the_reason_of_a_server_is_escaped(deltakwt: Run) -> None:
    class Hostile(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(b"HTTP/1.0 500 \x1b]0;owned\x07[/b]\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hostile)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    done = deltakwt("models", "pull", "arm-kwt-1", DELTAKWT_MODELS_URL=url)
    server.shutdown()
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert "500 \\x1b]0;owned\\x07[/b]" in done.stderr
