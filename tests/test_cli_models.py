"""The commands `eval`, `models`, `data` and `doctor` print what they should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import CLIPS, Run
from test_cli import one_line
from webserver import Site

import deltakwt as package
from deltakwt.core.config import LABELS
from deltakwt.weights.registry import SHIPPED


def test_eval_json(in_process: Run, trained: str, test_set: Path) -> None:
    command = ("eval", "--model", trained, "--data", test_set, "--json")
    done = in_process(*command, "--profile", "dense")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["clips"] == 24
    assert found["accuracy"] == sum(found["confusion"][label][label] for label in LABELS) / 24
    assert found["accuracy"] > 0.9
    assert found["per_class"]["yes"] == {"accuracy": 1.0, "clips": 2}
    assert found["seconds"] > 0
    assert (found["split"], found["silence"], found["seed"]) == ("test", "zero", 0)
    assert "macs" not in found
    usual = json.loads(in_process(*command).stdout)  # with the default profile
    assert usual["accuracy"] > 0.9
    assert 10 < usual["macs"]["model_percent"] < 40


def test_eval_with_thresholds_counts_by_class(
    in_process: Run, trained: str, full_set: Path
) -> None:
    done = in_process(
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


def test_eval_prints_a_table(in_process: Run, random_model: Path, test_set: Path) -> None:
    done = in_process(
        *("eval", "--model", random_model, "--data", test_set, "--limit", "10"),
        *("--thresholds", "0.2_0.2_0.2_0.05_0.001_0.05"),
    )
    assert done.returncode == 0, done.stderr
    assert "all MACs" in done.stdout
    assert "of the dense bytes" in done.stdout


def test_eval_is_titled_by_the_profile(in_process: Run, test_set: Path) -> None:
    """And not by the thresholds of its layers, which are 96 numbers."""
    done = in_process("eval", "--data", test_set, "--limit", "4", "--profile", "fast")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("kwt-1 (fast, ")


def test_eval_keeps_a_manifest(
    in_process: Run, random_model: Path, full_set: Path, tmp_path: Path
) -> None:
    arguments = ("eval", "--model", random_model, "--data", full_set, "--json", "--limit", "9")
    kept = ("--manifest", tmp_path / "m.json")
    first = json.loads(in_process(*arguments, *kept, "--seed", "5").stdout)
    again = json.loads(in_process(*arguments, *kept, "--seed", "6").stdout)
    assert again["seed"] == 5
    assert again["confusion"] == first["confusion"]


def test_eval_skips_bad_clips_and_says_so(
    in_process: Run, random_model: Path, test_set: Path, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(test_set, tmp_path / "data")
    (tmp_path / "data" / "yes" / "00000000_nohash_0.wav").write_bytes(b"nonsense")
    done = in_process("eval", "--model", random_model, "--data", tmp_path / "data", "--json")
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert json.loads(done.stdout)["clips"] == 23
    assert json.loads(done.stdout)["failed"][0]["file"] == "yes/00000000_nohash_0.wav"


def test_models_list_show_import(in_process: Run, arm_kwt1: Path, tmp_path: Path) -> None:
    names = {entry["name"] for entry in json.loads(in_process("models", "list", "--json").stdout)}
    assert {"arm-kwt-1", "arm-kwt-2", "arm-kwt-3"} <= names
    done = in_process("models", "import", arm_kwt1, "--out", tmp_path / "arm")
    assert done.returncode == 0, done.stderr
    shown = json.loads(in_process("models", "show", tmp_path / "arm", "--json").stdout)
    assert shown["parameters"] == 607_308
    assert shown["labels"] == list(LABELS)
    again = in_process("models", "import", arm_kwt1, "--out", tmp_path / "arm")
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert "607,308" in in_process("models", "show", arm_kwt1).stdout


def test_a_shipped_model_shows_what_its_profiles_do(in_process: Run) -> None:
    shown = " ".join(in_process("models", "show", "kwt-1").stdout.split())
    profiles = json.loads((SHIPPED / "kwt-1" / "profiles.json").read_text())["profiles"]
    measured = profiles["listening"]["measured"]
    assert (
        "front end smooth_2_0.2"
        f" accuracy {measured['accuracy']:.2f}% on 80% words, 20% telephone"
        f" {measured['macs_percent']:.2f}% of the dense MACs on 100% noise" in shown
    )


def test_models_pull(
    in_process: Run, site: Site, arm_kwt1: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTAKWT_MODELS_URL", site.url)
    done = in_process("models", "pull", "arm-kwt-1")
    assert done.returncode == 1
    assert "404" in done.stderr
    path = "/models_data_v2_12_labels/kwt1/tflite_non_stream/non_stream.tflite"
    site.files[path] = b"TFL3 but not theirs"
    done = in_process("models", "pull", "arm-kwt-1")
    assert done.returncode == 1
    assert "git blob id differs" in done.stderr
    assert "not pulled yet" in in_process("spot", CLIPS / "yes.flac", "-m", "arm-kwt-1").stderr
    site.files[path] = arm_kwt1.read_bytes()
    site.cut_after = 1_000_000
    done = in_process("models", "pull", "arm-kwt-1", "--json")
    assert done.returncode == 0, done.stderr
    folder = Path(json.loads(done.stdout)["path"])
    assert folder == tmp_path / "cache" / "models" / "arm-kwt-1"
    assert [wanted for _, wanted in site.requests[-2:]] == [None, "bytes=1000000-"]
    (entry,) = json.loads(
        in_process("spot", CLIPS / "yes.flac", "-m", "arm-kwt-1", "--json").stdout
    )
    assert entry["events"][0]["label"] == "yes"
    assert list((tmp_path / "cache" / "downloads").iterdir()) == []


def test_data_get_and_info(in_process: Run, site: Site, test_set: Path, tmp_path: Path) -> None:
    import io
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(test_set, ".")
    site.files["/speech_commands_test_set_v0.02.tar.gz"] = packed.getvalue()
    site.files["/speech_commands_v0.01.tar.gz"] = packed.getvalue()
    site.cut_after = 1000
    arguments = ("data", "get", "test-v0.02", "--out", tmp_path / "d", "--json")
    done = in_process(*arguments, DELTAKWT_DATA_URL=site.url)
    assert done.returncode == 0, done.stderr
    assert "CC BY 4.0" in done.stderr
    folder = Path(json.loads(done.stdout)["path"])
    again = in_process(*arguments, DELTAKWT_DATA_URL=site.url)
    assert json.loads(again.stdout)["new"] is False
    assert [path.name for path in (tmp_path / "d").iterdir()] == [folder.name]
    info = json.loads(in_process("data", "info", folder, "--json").stdout)
    assert info["clips"] == 24
    assert "official test set" in in_process("data", "info", folder).stdout
    wrong = in_process("data", "get", "v0.01", "--out", tmp_path / "d", DELTAKWT_DATA_URL=site.url)
    assert wrong.returncode == 1
    assert "checksum differs" in wrong.stderr
    assert [path.name for path in (tmp_path / "d").iterdir()] == [folder.name]


def test_the_source_of_a_data_folder_is_escaped(in_process: Run, test_set: Path) -> None:
    stated = test_set / "SOURCE.json"
    stated.write_text(json.dumps({"name": "a\x1b[31mb", "licence": "free"}))
    try:
        shown = in_process("data", "info", test_set)
    finally:
        stated.unlink()
    assert shown.returncode == 0, shown.stderr
    assert "\x1b" not in shown.stdout
    assert "a\\x1b[31mb" in shown.stdout


def test_doctor(in_process: Run) -> None:
    done = in_process("doctor", "--json")
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout)
    assert found["ok"]
    assert found["version"] == package.__version__
    assert found["kernels"][0] == "scalar"
    assert len(found["self_test"]) >= 1 + len(found["kernels"])
    forced = json.loads(in_process("doctor", "--json", DELTAKWT_ISA="scalar").stdout)
    assert forced["chosen_kernels"] == "scalar"
    assert "ok: MFCC" in in_process("doctor").stdout
