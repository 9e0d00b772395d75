"""Everything that decides the result of a training run: the same plan gives the same weights."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from deltakwt.core.config import LABELS, MAX_STRIDE, Config, frames_of
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import Thresholds
from deltakwt.train.augment import Recipe

Shape = tuple[int, int, int, int]  # dim, heads, mlp, layers


def shape_of(config: Config) -> Shape:
    return config.dim, config.heads, config.mlp, config.layers


@dataclass(frozen=True)
class Plan:
    """A training run. A part is a fraction of the run, 0 to 1. Kept in every checkpoint."""

    data: tuple[str, ...] = ()  # folders of word folders
    speech: tuple[str, ...] = ()  # folders of running speech: unknown
    sounds: tuple[str, ...] = ()  # folders of other sounds and music: silence, and backgrounds
    rooms: str = ""  # folder of impulse responses, "simulated" or "noise"
    teachers: tuple[str, ...] = ()  # models whose answers are learned from
    hints: str = ""  # a narrower model whose tokens guide every block
    shape: Shape = (64, 1, 256, 12)  # dim, heads, mlp, layers: KWT-1
    stride: int = 1  # steps of 10 ms from one frame to the next
    labels: tuple[str, ...] = LABELS

    bank: int = 0  # augmented examples that are made once and reused; 0: each is made anew
    epochs: int = 96
    batch: int = 128
    shard: int = 32  # clips of one forward pass; a batch is a sum over shards in any process
    rate: float = 1e-3  # highest learning rate
    warmup: float = 0.05  # part of the run
    weight_decay: float = 0.1
    smoothing: float = 0.03  # label smoothing
    ema: float = 0.999  # decay of the averaged weights
    clip_norm: float = 1.0
    seed: int = 1

    # Examples of an epoch, relative to the number of keyword clips.
    unknown_share: float = 0.18  # other words
    silence_share: float = 0.10
    speech_share: float = 0.0  # cuts of running speech
    hard_share: float = 0.4  # of the cuts: places on which the model fired before
    negative_weight: float = 1.0  # weight of speech and silence in the loss near the end
    negative_part: float = 0.8  # part at which the weight, growing from 1, reaches this value

    teacher_share: float = 0.6  # of the loss on keywords; the rest is the label
    sharpness: float = 1.5  # factor of the teachers' logits
    layerwise: float = 0.0  # part in which a teacher of this shape trains every half block
    layerwise_rate: float = 3e-3
    hint_weight: float = 3.0  # at the start
    hint_until: float = 0.33  # part at which the weight of the hints reaches 0

    # Fewer tokens at first: (until this part, one frame of so many), then all frames.
    token_groups: tuple[tuple[float, int], ...] = ((0.88, 3), (0.96, 2))
    masking: float = 0.6  # strength of SpecAugment; 1 is the KWT authors', made for 140 epochs
    ease_from: float = 0.80  # SpecAugment fades from this part to the end
    delta: str = ""  # thresholds in the loop, in the form of `Thresholds.parse`
    delta_from: float = 0.82  # part at which they start
    delta_scale: tuple[float, float] = (0.3, 1.3)  # they are multiplied by a factor drawn from this
    mac_penalty: float = 0.0  # weight of the executed MACs in the loss, with thresholds in the loop

    recipe: Recipe = field(default_factory=Recipe)

    def config(self) -> Config:
        dim, heads, mlp, layers = self.shape
        frames = frames_of(self.stride)
        return Config(dim, heads, mlp, layers, self.labels, frames, stride=self.stride)

    def thresholds(self) -> Thresholds:
        """Return the thresholds in the loop; all sites are dense without `delta`."""
        return Thresholds.parse(self.delta) if self.delta else Thresholds()

    def learning_rate(self, part: float) -> float:
        """Return the rate: warm-up and cosine, for layer-wise distillation and for the rest."""
        if part < self.layerwise:
            return self.layerwise_rate * self._cosine(part / self.layerwise)
        return self.rate * self._cosine((part - self.layerwise) / (1 - self.layerwise))

    def _cosine(self, part: float) -> float:
        if part < self.warmup:
            return part / self.warmup
        return 0.5 * (1 + math.cos(math.pi * (part - self.warmup) / (1 - self.warmup)))

    def token_group(self, part: float) -> int:
        """Return n where one frame of n is used."""
        return next((group for until, group in self.token_groups if part < until), 1)

    def mask_strength(self, part: float) -> float:
        return self.masking * min(1.0, (1 - part) / (1 - self.ease_from))

    def weight_of_negatives(self, part: float) -> float:
        """Return the weight of speech and silence in the loss, which grows linearly from 1."""
        return 1 + (self.negative_weight - 1) * min(1.0, part / self.negative_part)

    def weight_of_hints(self, part: float) -> float:
        """Return the weight of the hints in the loss, which falls linearly to 0."""
        return self.hint_weight * max(0.0, 1 - part / self.hint_until) if self.hints else 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """Read a plan of this or another version; values that are no longer known are ignored."""
        known = {entry.name for entry in fields(cls)}
        values = {name: _tuples(value) for name, value in data.items() if name in known}
        recipe = values.get("recipe", {})
        known = {entry.name for entry in fields(Recipe)}
        values["recipe"] = Recipe(**{k: v for k, v in recipe.items() if k in known})
        return cls(**values)


LONG_EPOCHS = 20  # from here on, dropping tokens pays off in fine-tuning too
LAYERWISE_PART = 0.55  # default of a run with one teacher of the same shape


def plan_from_random(
    *, epochs: int | None = None, rate: float | None = None, layerwise: float = 0.0, **chosen: Any
) -> Plan:
    """Return the long plan from random weights: few tokens first, all tokens at the end.

    With `layerwise`, half blocks are copied from the teacher first.
    """
    phases: dict[str, Any] = {}
    if layerwise:
        # The copied function is easily lost: low rate, all tokens, masks that fade from the start.
        phases |= {"ema": 0.99, "ease_from": layerwise, "token_groups": ((layerwise, 3),)}
        phases |= {"delta_from": layerwise, "teacher_share": 0.9}
    elif chosen.get("delta"):
        # Thresholds need all tokens, and a learning rate that is still high enough for them.
        phases |= {"token_groups": ((0.70, 3), (0.82, 2)), "delta_from": 0.82}
    return Plan(
        epochs=epochs or (7 if layerwise else 96),
        rate=rate or (1e-4 if layerwise else 1e-3),
        layerwise=layerwise,
        **phases | chosen,
    )


def plan_from_model(
    *, epochs: int | None = None, rate: float | None = None, layerwise: float = 0.0, **chosen: Any
) -> Plan:
    """Return a plan that continues a trained model.

    Short runs use all tokens, and thresholds from the start. Runs on running speech have more to
    learn: half of the run uses every second frame, and thresholds start after that half.
    """
    if (epochs or 0) >= LONG_EPOCHS and not chosen.get("speech"):
        return plan_from_random(epochs=epochs, rate=rate or 3e-4, layerwise=layerwise, **chosen)
    phases: dict[str, Any] = {"ema": 0.99, "token_groups": (), "ease_from": 0.0, "delta_from": 0.0}
    if chosen.get("speech"):
        phases = {"token_groups": ((0.5, 2),), "masking": 0.5, "ease_from": 0.5, "delta_from": 0.5}
    return Plan(
        epochs=epochs or 10,
        rate=rate or (4e-4 if chosen.get("speech") else 3e-4),
        layerwise=layerwise,
        **phases | chosen,
    )


def plan_from_widened(
    *, epochs: int | None = None, rate: float | None = None, **chosen: Any
) -> Plan:
    """Return a plan for a widened model: its new features need a high rate and many steps.

    Most of the run uses one frame of three.
    """
    phases: dict[str, Any] = {
        "batch": 64,
        "token_groups": ((0.80, 3), (0.93, 2)),
        "masking": 0.5,
        "ease_from": 0.5,
        "ema": 0.998,
        "warmup": 0.08,
        "unknown_share": 0.25,
        "silence_share": 0.12,
    }
    return Plan(epochs=epochs or 8, rate=rate or 4e-4, **phases | chosen)


def with_negatives(plan: Plan) -> Plan:
    """Return the plan with the shares and weights that fit its negatives (speech and sounds)."""
    recipe = plan.recipe
    if plan.speech:
        recipe = replace(recipe, cut_chance=0.1)
        plan = replace(plan, unknown_share=0.22, speech_share=0.62, negative_weight=2.5)
    if plan.sounds:
        plan = replace(plan, silence_share=0.30)
    return replace(plan, recipe=recipe)


def with_synthetic_speech(plan: Plan) -> Plan:
    """Return the plan for synthetic words, which have no room and overfit quickly."""
    recipe = replace(plan.recipe, room_chance=0.5, cut_chance=max(0.04, plan.recipe.cut_chance))
    unknown, silence = max(1.0, plan.unknown_share), max(0.2, plan.silence_share)
    rooms = plan.rooms or "noise"
    return replace(plan, recipe=recipe, rooms=rooms, unknown_share=unknown, silence_share=silence)


def parse_shape(text: str) -> Shape:
    """Read "DIM,HEADS,MLP,LAYERS"."""
    try:
        dim, heads, mlp, layers = (int(part) for part in text.split(","))
    except ValueError:
        raise DeltakwtError(
            f"--shape {text}: give four whole numbers, DIM,HEADS,MLP,LAYERS, such as 32,1,64,6"
        ) from None
    if min(dim, heads, mlp, layers) < 1 or dim > 1024 or mlp > 4096 or layers > 64:
        raise DeltakwtError(
            f"--shape {text}: DIM is at most 1024, MLP 4096, LAYERS 64, and all are at least 1"
        )
    if dim % heads:
        raise DeltakwtError(f"--shape {text}: HEADS ({heads}) must divide DIM ({dim})")
    return dim, heads, mlp, layers


def check_stride(stride: int) -> int:
    """Return the stride if a model can have it."""
    if not 1 <= stride <= MAX_STRIDE:
        raise DeltakwtError(f"--stride {stride}: must be 1 to {MAX_STRIDE}")
    return stride


def _tuples(value: Any) -> Any:
    """Return JSON's lists as the tuples of a plan."""
    if isinstance(value, dict):
        return {name: _tuples(inner) for name, inner in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
