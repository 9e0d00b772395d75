"""A model: weights, a setting and the engine, called with a sound."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltakwt.core.config import CLIP_SAMPLES, Config
from deltakwt.core.engine import Engine, Outcome
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import Macs
from deltakwt.core.native import as_floats
from deltakwt.core.setting import Profiles, Setting, SettingLike

if TYPE_CHECKING:
    import os

    from deltakwt.audio import Sound
    from deltakwt.listen.spotter import Spotting


@dataclass(frozen=True)
class Result:
    """The answer for one second of sound."""

    label: str
    logits: NDArray[np.float32]  # (labels,)
    ms: float  # time from samples to logits
    macs: Macs | None = None  # None for a dense run
    nonzeros: NDArray[np.int64] | None = None  # (layers, 9) kept values per site
    saturated: int = 0  # tensors that reached the limit of 16 bits; always 0 in float arithmetic
    trace: dict[str, NDArray[Any]] | None = None

    @cached_property
    def scores(self) -> NDArray[np.float32]:
        """The softmax of the logits (labels,), computed when it is first read."""
        return softmax(self.logits)

    @property
    def score(self) -> float:
        """The softmax value of the label, 0 to 1."""
        return float(self.scores.max())

    def __repr__(self) -> str:
        macs = "dense" if self.macs is None else f"{self.macs.model_percent:.1f}% of the MACs"
        return f"<deltakwt.Result {self.label!r} score={self.score:.3f} {self.ms:.2f} ms, {macs}>"


class Model:
    """A Keyword Transformer. Many threads may call one model at the same time.

    `setting` says how it runs. After `deltakwt.load` it is the model's default profile, or dense
    if the model has none. It can be set to a `Setting`, to `Thresholds` (which then run on the
    plain front end), to the name of a profile, or to "dense". Every call can be given another one.
    `arithmetic` says in which numbers the layers are computed: "float" or "fixed".
    """

    __slots__ = ("_setting", "config", "engine", "name", "profiles", "source")

    def __init__(
        self,
        config: Config,
        engine: Engine,
        profiles: Profiles | None = None,
        name: str = "",
        source: str | None = None,
    ) -> None:
        self.config = config
        self.engine = engine
        self.profiles = profiles or Profiles()
        self.name = name
        self.source = source  # the name or path for `load`; None for a model made in memory
        self._setting = self.profiles.setting(None)

    def __repr__(self) -> str:
        size = f"dim={self.config.dim} layers={self.config.layers}"
        how = f"setting={str(self.setting)!r} arithmetic={self.arithmetic!r}"
        return f"<deltakwt.Model {self.name} {size} {how}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the model as its source and its setting: unpickling loads it again."""
        if self.source is None:
            raise DeltakwtError(
                f"model {self.name!r}: made in memory, so it cannot be pickled; save it with"
                " deltakwt.weights.folder.save_folder and load that folder"
            )
        return _load_again, (self.source, self.name, self._setting, self.arithmetic)

    def __copy__(self) -> Model:
        """Return a model with its own setting. The engine never changes, so both use the same."""
        copy = Model(self.config, self.engine, self.profiles, self.name, self.source)
        copy._setting = self._setting
        return copy

    def __deepcopy__(self, _: dict[int, Any]) -> Model:
        """Return the same as `copy.copy`: everything but the setting is immutable."""
        return self.__copy__()

    @property
    def labels(self) -> tuple[str, ...]:
        """The words that the model knows, in the order of its logits."""
        return self.config.labels

    @property
    def arithmetic(self) -> str:
        """The numbers in which the layers are computed, chosen by `load`: "float" or "fixed"."""
        return self.engine.arithmetic

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
        clip = _audio().one_clip(sound, sample_rate)
        return self.classify(clip, setting=setting, trace=trace)

    def classify(
        self, clip: ArrayLike, *, setting: SettingLike | None = None, trace: bool = False
    ) -> Result:
        """Classify exactly one second: (16000,) samples in [-1, 1] at 16 kHz."""
        chosen = self.setting_of(setting)
        if trace and chosen.thresholds is None:
            raise DeltakwtError("a trace shows deltas: it needs a setting with thresholds")
        shape = _shape(clip)
        if shape != (CLIP_SAMPLES,):
            raise DeltakwtError(f"clip of shape {shape}: must be ({CLIP_SAMPLES},)")
        start = time.perf_counter()
        run = self._run(clip, chosen)
        ms = 1e3 * (time.perf_counter() - start)
        return Result(
            self.labels[int(run.logits.argmax())],
            run.logits,
            ms,
            None
            if run.macs is None or run.nonzeros is None
            else Macs(self.config, run.macs, run.nonzeros, self.engine.isa),
            run.nonzeros,
            run.saturated,
            self.engine.trace(self.engine.features(clip, chosen.front_end), chosen.thresholds)
            if trace and chosen.thresholds is not None
            else None,
        )

    def _run(self, clip: ArrayLike, setting: Setting) -> Outcome:
        """Run the engine. An error with a proper sound is caused by the model, so it is named."""
        sound = as_floats(clip, "sound")
        try:
            return self.engine.classify(sound, setting.front_end, setting.thresholds)
        except DeltakwtError as error:
            raise DeltakwtError(f"model {self.name}: {error}") from error

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
        from deltakwt.listen.spotter import spot  # imported here: core must not depend on it

        return spot(self, sound, sample_rate, setting=setting, progress=progress)


def load(name_or_path: str | os.PathLike[str], *, arithmetic: str | None = None) -> Model:
    """Return a model by shipped or downloaded name, from a model folder, or from a .tflite file.

    `arithmetic` is "float", or "fixed": 16-bit integers, with the same bits on every processor,
    for models that have scales (`deltakwt quantize`). None is fixed for a model with scales, and
    float for others.
    """
    from deltakwt.weights.registry import load_model  # imported here: core must not depend on it

    return load_model(name_or_path, arithmetic)


def _load_again(source: str, name: str, setting: Setting, arithmetic: str) -> Model:
    """Return the model that was pickled, with the name, setting and arithmetic that it had."""
    model = load(source, arithmetic=arithmetic)
    model.name, model.setting = name, setting
    return model


@cache
def _audio() -> ModuleType:
    """Return deltakwt.audio, imported by the first call: core must not depend on it."""
    from deltakwt import audio

    return audio


def _shape(values: ArrayLike) -> tuple[int, ...]:
    if isinstance(values, np.ndarray):
        shape: tuple[int, ...] = values.shape
        return shape
    try:
        return np.shape(values)
    except ValueError:  # lists of different lengths
        raise DeltakwtError("clip: is not an array of numbers") from None


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the softmax over the last axis."""
    # `reduce` is what `max` and `sum` call, with less Python around one clip.
    powers: Any = np.exp(logits - np.maximum.reduce(logits, axis=-1, keepdims=True))
    scores: NDArray[np.float32] = powers / np.add.reduce(powers, axis=-1, keepdims=True)
    return scores
