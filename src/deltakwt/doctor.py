"""Checks of the installation: processor, kernels, extras, and self-tests."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import deltakwt
from deltakwt.audio import read_clip
from deltakwt.core import frontend, reference
from deltakwt.core.config import KWT1
from deltakwt.core.engine import Engine
from deltakwt.core.native import available_isas, choose_isa
from deltakwt.provenance import cpu_facts
from deltakwt.weights.folder import random_tensors
from deltakwt.weights.registry import named_models

CLIP = Path(__file__).parent / "selftest.flac"  # a synthetic voice says "yes"
EXTRAS = {  # extra: the modules it brings
    "tune": ["optuna", "psycopg"],
    "report": ["matplotlib"],
    "listen": ["sounddevice"],
    "serve": ["starlette", "uvicorn", "websockets", "wyoming"],
    "onnx": ["onnx"],
    "tflite": ["ai_edge_litert", "flatbuffers"],
    "archive": ["pyarrow"],
    "cluster": ["pyarrow", "ray"],
    "train": ["torch"],
    "bench": ["ai_edge_litert", "onnx", "onnxruntime", "openvino"],
}
CPU_FEATURES = ("sse4", "avx", "fma", "f16c", "amx", "neon", "asimd", "sve")


def examine() -> dict[str, Any]:
    """Return everything that `deltakwt doctor` shows. "ok" is whether all self-tests passed."""
    tests = self_test()
    return {
        "version": deltakwt.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        **_cpu(),
        "kernels": list(available_isas()),
        "chosen_kernels": choose_isa(),
        "extras": {name: all(map(find_spec, modules)) for name, modules in EXTRAS.items()},
        "models": list(named_models()),
        "self_test": tests,
        "ok": all(test["ok"] for test in tests),
    }


def _cpu() -> dict[str, Any]:
    """Return the processor's name and its features that kernels may use."""
    facts = cpu_facts()
    flags = facts.get("flags", facts.get("Features", "")).split()
    return {
        "cpu": facts.get("model name", platform.processor() or "unknown"),
        "cpu_features": [flag for flag in flags if flag.startswith(CPU_FEATURES)],
    }


def self_test() -> list[dict[str, Any]]:
    """Compare the native core with the NumPy reference on the built-in clip."""
    clip = read_clip(CLIP)
    features = frontend.mfcc(clip)
    tensors = random_tensors(KWT1)
    expected = reference.dense(KWT1, tensors, features)

    def front_end() -> str:
        worst = float(np.abs(_random_engine().features(clip) - features).max())
        return _within("MFCC", worst, 1e-3)

    def kernels(isa: str) -> str:
        worst = float(np.abs(Engine(KWT1, tensors, isa=isa).dense(features) - expected).max())
        return _within("logits", worst, 1e-3)

    def shipped(name: str) -> str:
        label = deltakwt.load(name)(CLIP).label
        if label != "yes":
            raise AssertionError(f"classified {label}, not yes")
        return "classified yes"

    tests = [_run("front end", front_end)]
    tests += [_run(f"kernels {isa}", partial(kernels, isa)) for isa in available_isas()]
    if "kwt-1" in named_models():
        tests.append(_run("model kwt-1", lambda: shipped("kwt-1")))
    return tests


def _run(name: str, test: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"test": name, "ok": True, "found": test()}
    except Exception as error:  # every failure is a line of the report
        return {"test": name, "ok": False, "found": f"{type(error).__name__}: {error}"}


def _within(what: str, worst: float, limit: float) -> str:
    found = f"{what} differ by at most {worst:.1e} from NumPy"
    if not worst <= limit:
        raise AssertionError(f"{found}, more than {limit}")
    return found


def _random_engine() -> Engine:
    return Engine(KWT1, random_tensors(KWT1))
