"""Everything that decides a training run, so that the same plan gives the same weights."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from deltakwt.core.config import LABELS, SIZES, Config
from deltakwt.core.setting import Thresholds
from deltakwt.train.augment import Recipe


@dataclass(frozen=True)
class Plan:
    """The KWT authors' recipe where nothing better was found; kept in every checkpoint."""

    data: tuple[str, ...] = ()  # folders of word folders
    teacher: str = ""  # a model to learn from
    size: str = "kwt-1"
    labels: tuple[str, ...] = LABELS
    epochs: int = 96
    batch: int = 128
    shard: int = (
        32  # clips in one forward; a batch is a sum over shards, in any number of processes
    )
    rate: float = 1e-3
    warmup: float = 0.05  # of all steps
    weight_decay: float = 0.1
    smoothing: float = 0.1  # of the labels
    unknown_share: float = 0.18  # clips of other words in an epoch, as a part of the wanted
    silence_share: float = 0.10
    ema: float = 0.999
    clip_norm: float = 1.0
    seed: int = 1
    teacher_share: float = 0.9  # of the loss on words, where there is a teacher
    lessons: float = 0.0  # part of the run in which a teacher of this shape shows every block
    lessons_rate: float = 3e-3
    # Fewer tokens at first: (until this part of the run, one frame of so many), then all frames.
    token_groups: tuple[tuple[float, int], ...] = ((0.88, 3), (0.96, 2))
    masking: float = 0.6  # of the authors' SpecAugment, which is made for 140 epochs
    ease_from: float = 0.80  # SpecAugment fades from here to the end
    delta: str = ""  # thresholds in the loop, in the form of `Thresholds.parse`
    delta_from: float = 0.82  # of the run: the learning rate is still high enough to learn it
    calm: float = 0.0  # weight of the MACs in the loss, where thresholds are in the loop
    delta_scale: tuple[float, float] = (0.3, 1.3)  # the thresholds vary by this factor

    recipe: Recipe = field(default_factory=Recipe)

    def config(self) -> Config:
        shape = SIZES[self.size]
        return Config(shape.dim, shape.heads, shape.mlp, shape.layers, self.labels)

    def thresholds(self) -> Thresholds:
        """Of the loop; all dense without `delta`."""
        return Thresholds.parse(self.delta) if self.delta else Thresholds()

    def learning_rate(self, part: float) -> float:
        """At `part` (0 to 1) of the run: warm-up and cosine, for lessons and for the rest."""
        if part < self.lessons:
            return self.lessons_rate * self._wave(part / self.lessons)
        return self.rate * self._wave((part - self.lessons) / (1 - self.lessons))

    def _wave(self, part: float) -> float:
        if part < self.warmup:
            return part / self.warmup
        return 0.5 * (1 + math.cos(math.pi * (part - self.warmup) / (1 - self.warmup)))

    def token_group(self, part: float) -> int:
        return next((group for until, group in self.token_groups if part < until), 1)

    def mask_strength(self, part: float) -> float:
        return self.masking * min(1.0, (1 - part) / (1 - self.ease_from))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """A plan kept by any version: what is not known any more is left out."""
        known = {field.name for field in fields(cls)}
        values = {name: _tuple(value) for name, value in data.items() if name in known}
        return cls(**values | {"recipe": Recipe(**values.get("recipe", {}))})


def from_nothing(
    *,
    epochs: int | None,
    rate: float | None,
    lessons: float | None = None,
    synth: bool = False,
    **chosen: Any,
) -> Plan:
    """The long plan: few tokens first, all tokens at the end; or a copy of the teacher first."""
    if lessons is None:
        lessons = COPY if chosen.get("teacher") else 0.0
    phases: dict[str, Any] = {}
    if lessons:
        # What was copied is easily lost: low rate, all tokens, masks that fade from the start.
        phases |= {"ema": 0.99, "ease_from": lessons, "token_groups": ((lessons, 3),)}
        phases |= {"delta_from": lessons}
    elif chosen.get("delta"):
        # Thresholds need all tokens, and a learning rate that is still high enough for them.
        phases |= {"token_groups": ((0.70, 3), (0.82, 2)), "delta_from": 0.82}
    return Plan(
        epochs=epochs or (7 if lessons else 96),
        rate=rate or (1e-4 if lessons else 1e-3),
        lessons=lessons,
        **phases,
        **_synthetic(synth),
        **chosen,
    )


def growing(*, epochs: int | None, rate: float | None, **chosen: Any) -> Plan:
    """For a widened model: its copies move together, so each may only move a little."""
    return fine_tuning(epochs=epochs or 8, rate=rate or 5e-5, **chosen)


def fine_tuning(
    *,
    epochs: int | None,
    rate: float | None,
    lessons: float | None = None,
    synth: bool = False,
    **chosen: Any,
) -> Plan:
    """For weights that know much already: all tokens, thresholds throughout; or the long plan."""
    epochs, rate = epochs or 10, rate or 3e-4
    if epochs >= LONG:
        return from_nothing(epochs=epochs, rate=rate, lessons=lessons or 0.0, synth=synth, **chosen)
    return Plan(
        epochs=epochs,
        rate=rate,
        lessons=lessons or 0.0,
        ema=0.99,
        token_groups=(),
        ease_from=0.0,
        delta_from=0.0,
        **_synthetic(synth),
        **chosen,
    )


LONG = 20  # epochs; from here on dropping tokens pays
COPY = 0.55  # of a run with a teacher: lessons


def _synthetic(synth: bool) -> dict[str, Any]:
    """Synthetic speech knows no room and is soon learned by heart: give it rooms, other words."""
    if not synth:
        return {}
    recipe = Recipe(room_chance=0.5, cut_chance=0.04)  # half a word is another word
    return {"recipe": recipe, "unknown_share": 1.0, "silence_share": 0.2}


def _tuple(value: Any) -> Any:
    """JSON has lists where a plan has tuples."""
    if isinstance(value, dict):
        return {name: _tuple(inner) for name, inner in value.items()}
    return tuple(map(_tuple, value)) if isinstance(value, list) else value
