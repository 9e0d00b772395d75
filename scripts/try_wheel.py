"""Try the installed package and print one JSON document. Runs in the environment of one wheel.

    python try_wheel.py CLIPS [FOLDER]

CLIPS is examples/clips. FOLDER is put in front of sys.path: interpreters without environments of
their own find the packages there. The document has what `doctor` found, the words heard in the ten
clips, a hash of what the fixed-point engine computes, which is the same on every machine, the
modules that this system cannot import, and whether a folder can be locked.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
import sys
import tempfile
from pathlib import Path

WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")


def fixed_point(clips: Path) -> dict[str, str]:
    """Return, for every instruction set, the hash of logits, counts and kept deltas."""
    import numpy as np

    from deltakwt.audio import read_clip
    from deltakwt.core.fixed_engine import FixedEngine
    from deltakwt.core.fixed_scales import calibrate
    from deltakwt.core.frontend import mfcc
    from deltakwt.core.native import available_isas
    from deltakwt.core.setting import Thresholds
    from deltakwt.weights.folder import load_weights
    from deltakwt.weights.registry import SHIPPED

    weights = load_weights(SHIPPED / "kwt-1")
    # The float front end may differ in the last bit between machines; a coarse grid hides that.
    heard = [mfcc(read_clip(clips / f"{word}.flac")) for word in WORDS]
    floats = (np.round(np.array(heard) * 8) / 8).astype(np.float32)  # (10, 98, 40)
    scales = calibrate(weights.config, weights.tensors, floats)
    thresholds = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05_0.3_0.1")
    found = {}
    for isa in available_isas():
        engine = FixedEngine(weights.config, weights.tensors, scales, isa)
        digest = hashlib.sha256()
        for setting in (None, thresholds):
            for array in engine.integers(engine.quantized(floats), setting, 1, setting is not None):
                digest.update(np.ascontiguousarray(array).astype("<i8").tobytes())
        found[isa] = digest.hexdigest()
    return found


def missing_modules() -> list[str]:
    """Import every module; return those that need a module of another system."""
    import deltakwt

    missing = []
    for module in pkgutil.walk_packages(deltakwt.__path__, "deltakwt."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name in sys.stdlib_module_names:
                missing.append(f"{module.name}: {error}")
        except ImportError:  # of an extra that is not installed
            continue
    return missing


def lock_holds() -> bool:
    """Return whether a folder can be locked once, and again after that."""
    from deltakwt.locks import FolderInUse, locked

    with tempfile.TemporaryDirectory() as name:
        for _ in range(2):
            with locked(Path(name)):
                try:
                    with locked(Path(name)):
                        return False
                except FolderInUse:
                    continue
    return True


def main(clips: Path) -> dict[str, object]:
    """Import, examine, listen to the ten clips, and compute in fixed point."""
    import deltakwt
    from deltakwt.doctor import examine

    report = examine()
    model = deltakwt.load("kwt-1")
    heard = {word: model(clips / f"{word}.flac").label for word in WORDS}
    spoken = [event.label for event in model.spot(clips / "sentence.flac").events]
    return {
        "file": deltakwt.__file__,
        "python": report["python"],
        "machine": report["machine"],
        "kernels": report["kernels"],
        "doctor": report["ok"],
        "failed": [test for test in report["self_test"] if not test["ok"]],
        "heard": heard,
        "sentence": spoken,
        "missing": missing_modules(),
        "lock": lock_holds(),
        "fixed": fixed_point(clips),
    }


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.path.insert(0, sys.argv[2])
    print(json.dumps(main(Path(sys.argv[1]))))
