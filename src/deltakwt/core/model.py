"""A model: weights, a setting and the engine, called with a sound."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltakwt.core.config import CLIP_SAMPLES, Config
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import Macs
from deltakwt.core.setting import Profiles, Setting, SettingLike

if TYPE_CHECKING:
    import os

    from deltakwt.audio import Sound
    from deltakwt.listen.spotting import Spotting


@dataclass(frozen=True)
class Result:
    """The answer for one second of sound."""

    label: str
    score: float  # softmax value of the label, 0 to 1
    scores: NDArray[np.float32]  # (labels,) softmax of the logits
    logits: NDArray[np.float32]  # (labels,)
    ms: float  # time from samples to logits
    macs: Macs | None = None  # None for a dense run
    nonzeros: NDArray[np.int64] | None = None  # (layers, 9) kept values per site
    trace: dict[str, NDArray[Any]] | None = field(default=None, repr=False)


class Model:
    """A Keyword Transformer. Many threads may call one model at the same time.

    `setting` says how it runs. After `deltakwt.load` it is the model's default profile, or dense
    if the model has none. It can be set to a `Setting`, to `Thresholds` (which then run on the
    plain front end), to the name of a profile, or to "dense". Every call can be given another one.
    """

    __slots__ = ("_setting", "config", "engine", "name", "profiles")

    def __init__(
        self, config: Config, engine: Engine, profiles: Profiles | None = None, name: str = ""
    ) -> None:
        self.config = config
        self.engine = engine
        self.profiles = profiles or Profiles()
        self.name = name
        self._setting = self.profiles.setting(None)

    def __repr__(self) -> str:
        size = f"dim={self.config.dim} layers={self.config.layers}"
        return f"<deltakwt.Model {self.name} {size} setting={str(self.setting)!r}>"

    @property
    def labels(self) -> tuple[str, ...]:
        return self.config.labels

    @property
    def setting(self) -> Setting:
        """How the model runs unless a call says otherwise."""
        return self._setting

    @setting.setter
    def setting(self, wanted: SettingLike) -> None:
        self._setting = self.profiles.setting(wanted)

    def setting_of(self, wanted: SettingLike | None) -> Setting:
        """Return the setting that a call uses: the wanted one, or the model's own for None."""
        return self._setting if wanted is None else self.profiles.setting(wanted)

    def __call__(
        self,
        sound: Sound,
        sample_rate: int | None = None,
        *,
        setting: SettingLike | None = None,
        trace: bool = False,
    ) -> Result:
        """Classify up to one second of sound: a file, or samples (16 kHz unless said otherwise).

        With `trace`, the result also holds the references of every delta site.
        """
        from deltakwt.audio import one_clip  # the package above core reads files

        return self.classify(one_clip(sound, sample_rate), setting=setting, trace=trace)

    def classify(
        self, clip: ArrayLike, *, setting: SettingLike | None = None, trace: bool = False
    ) -> Result:
        """Classify exactly one second: (16000,) samples in [-1, 1] at 16 kHz."""
        chosen = self.setting_of(setting)
        if trace and chosen.thresholds is None:
            raise DeltakwtError("a trace shows deltas: it needs a setting with thresholds")
        if np.shape(clip) != (CLIP_SAMPLES,):
            raise DeltakwtError(f"clip of shape {np.shape(clip)}: must be ({CLIP_SAMPLES},)")
        start = time.perf_counter()
        features = self.engine.features(clip, chosen.front_end)  # (98, 40)
        run = None if chosen.thresholds is None else self.engine.delta(features, chosen.thresholds)
        logits = self.engine.dense(features) if run is None else run.logits
        ms = 1e3 * (time.perf_counter() - start)
        scores = softmax(logits)
        best = int(scores.argmax())
        return Result(
            self.labels[best],
            float(scores[best]),
            scores,
            logits,
            ms,
            None if run is None else Macs(self.config, run.macs),
            None if run is None else run.nonzeros,
            self.engine.trace(features, chosen.thresholds)
            if trace and chosen.thresholds is not None
            else None,
        )

    def spot(
        self,
        sound: Sound,
        sample_rate: int | None = None,
        *,
        setting: SettingLike | None = None,
        progress: Callable[[float], None] = lambda seconds: None,
    ) -> Spotting:
        """Find the words in a sound of any length. It is streamed, never held in memory whole.

        `progress` is called with the seconds processed so far.
        """
        from deltakwt.listen.spotting import spot  # the package above core follows streams

        return spot(self, sound, sample_rate, setting=setting, progress=progress)


def load(name_or_path: str | os.PathLike[str]) -> Model:
    """Return a model by shipped or downloaded name, from a model folder, or from a .tflite file."""
    from deltakwt.weights.registry import load_model  # the package above core reads model files

    return load_model(name_or_path)


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the softmax over the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    scores: NDArray[np.float32] = powers / powers.sum(axis=-1, keepdims=True)
    return scores
