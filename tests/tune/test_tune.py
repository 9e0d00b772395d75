"""The parts of a tuning: mixes, pools, fronts, goals, intervals, the refinement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltakwt.core.config import KWT1, Config
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import dense_macs
from deltakwt.core.model import Model
from deltakwt.core.setting import (
    SITES,
    FrontEndSetting,
    Profile,
    Profiles,
    Setting,
    Thresholds,
)
from deltakwt.evaluate.pool import GROUPS, Mix, Pool
from deltakwt.tune.goals import (
    Candidate,
    Goals,
    Unreachable,
    choose,
    dominated,
    estimate,
    groups_over,
    pareto,
)
from deltakwt.tune.measure import Evaluator, Measurement, mcnemar, wilson
from deltakwt.tune.refine import (
    Slopes,
    adjusted,
    hadamard,
    moved,
    slopes,
    threshold_table,
    with_table,
)
from deltakwt.tune.search import clip_counts, parse_sites
from deltakwt.tune.tuning import TuningOptions, known_settings
from deltakwt.weights.folder import random_tensors

SMALL = Config(dim=16, heads=2, mlp=32, layers=2)
SETTING = Setting(Thresholds(*[0.1] * 8))
MIX = Mix.parse("words=10,unknown=1,zero=1")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(SMALL, random_tensors(SMALL))


@pytest.fixture(scope="module")
def pool() -> Pool:
    """60 clips of noise: 40 words, 12 unknown, one zero, 7 noise; three of a speaker."""
    dice = np.random.default_rng(3)
    audio = dice.normal(0, 0.05, (60, 16_000)).astype(np.float32)
    groups = np.array([0] * 40 + [1] * 12 + [2] + [3] * 7)
    audio[52] = 0
    targets = np.array([2 + i % 10 for i in range(40)] + [1] * 12 + [0] * 8)
    return Pool("made up", audio, groups, targets, [f"speaker {i // 3}" for i in range(60)])


def test_weights_of_a_mix_sum_to_one_and_bad_ones_are_refused() -> None:
    assert sum(MIX.weights) == pytest.approx(1)
    assert MIX.groups == ("words", "unknown", "zero")
    for text, message in (
        ("speech=1", "unknown group"),
        ("words=x", "number"),
        ("words=0", "zero"),
    ):
        with pytest.raises(DeltakwtError, match=message):
            Mix.parse(text)


def test_every_prefix_of_a_stratified_pool_has_all_groups_in_proportion(pool: Pool) -> None:
    ordered = pool.stratified(seed=1)
    assert sorted(ordered.targets) == sorted(pool.targets)
    half = ordered.groups[:30]
    assert 17 <= (half == 0).sum() <= 23
    assert GROUPS[ordered.groups[0]] == "zero"
    for turn in range(5):
        window = ordered.window(20, turn)
        assert len(set(window)) == 20
        assert (ordered.groups[window] == GROUPS.index("zero")).sum() == 1


@pytest.mark.parametrize("seed", range(4))
def test_held_out_clips_are_of_other_speakers(pool: Pool, seed: int) -> None:
    """Digital silence has no speaker and belongs to both pools."""
    silence = pool.counts()["zero"]
    kept, held = pool.hold_out(0.3, seed)
    assert kept.counts()["zero"] == held.counts()["zero"] == silence
    assert len(kept) + len(held) == len(pool) + silence
    spoken = [
        {s for s, g in zip(p.sources, p.groups, strict=True) if GROUPS[g] != "zero"}
        for p in (kept, held)
    ]
    assert not spoken[0] & spoken[1]


def test_a_group_weighs_what_the_mix_says_however_many_clips_it_has(pool: Pool) -> None:
    weights = pool.weights(Mix.parse("words=3,noise=1"), pool.window(None))
    assert weights[:40].sum() == pytest.approx(0.75)
    assert weights[-7:].sum() == pytest.approx(0.25)


def test_threshold_zero_has_no_loss(engine: Engine, pool: Pool) -> None:
    evaluator = Evaluator(SMALL, engine, pool, MIX)
    measured = evaluator.measure(Setting(Thresholds(*[0.0] * 8)))
    assert measured.loss == pytest.approx(0)
    assert measured.kl == pytest.approx(0, abs=1e-4)
    assert measured.expected_loss == pytest.approx(0, abs=1e-2)
    coarse = evaluator.measure(SETTING)
    assert coarse.macs < measured.macs <= 100
    whole = dense_macs(SMALL).sum()
    counted = engine.batch(pool.features(engine), SETTING).macs
    assert counted is not None
    assert coarse.percent == pytest.approx(100 * counted.sum(axis=(1, 2)) / whole)


def test_without_labels_the_dense_answer_is_the_target(engine: Engine, pool: Pool) -> None:
    unlabelled = Pool("own", pool.audio, pool.groups * 0, pool.targets * 0 - 1, pool.sources)
    measured = Evaluator(SMALL, engine, unlabelled, Mix.parse("words=1")).measure(SETTING)
    assert measured.dense_accuracy == pytest.approx(100)
    dense = engine.batch(pool.features(engine)).logits.argmax(axis=1)
    delta = engine.batch(pool.features(engine), SETTING).logits.argmax(axis=1)
    assert measured.loss == pytest.approx(100 * (dense != delta).mean())


def test_features_are_computed_once_a_front_end(engine: Engine, pool: Pool) -> None:
    assert pool.features(engine, FrontEndSetting(True)) is pool.features(
        engine, FrontEndSetting(True)
    )
    assert not np.array_equal(pool.features(engine), pool.features(engine, FrontEndSetting(True)))


values = st.tuples(st.floats(0, 10), st.floats(0, 10))


@given(st.lists(values, min_size=1, max_size=30))
def test_the_front_is_what_nothing_beats(points: list[tuple[float, float]]) -> None:
    front = pareto(points, lambda v: v)
    for a in front:
        assert not any(b[0] <= a[0] and b[1] <= a[1] and b != a for b in points)
    for point in points:
        assert any(a[0] <= point[0] and a[1] <= point[1] for a in front)


def test_a_setting_is_dominated_beyond_the_slack() -> None:
    assert dominated((1.0, 5.0), [(0.2, 4.0)], slack=0.5)
    assert not dominated((1.0, 5.0), [(0.2, 4.0)], slack=1.0)


def test_clip_counts_grow_to_all_clips() -> None:
    assert clip_counts(800)[-1] == 800
    assert clip_counts(800) == sorted(set(clip_counts(800)))
    assert clip_counts(60) == [60]


def measurement_of(loss_of: float, count: int = 400, macs: float = 10.0) -> Measurement:
    """Return a setting that loses a share of `count` clips, all of which dense has right."""
    right = np.arange(count) >= round(count * loss_of / 100)
    even, nothing = np.full(count, 1 / count), np.zeros(count)
    return Measurement(
        SETTING,
        right,
        np.ones(count, bool),
        1.0 - right,
        nothing,
        nothing,
        np.full(count, macs),
        np.full(count, macs),
        macs,
        even,
        even,
        np.zeros(count, int),
    )


def test_intervals_contain_the_figure_and_narrow_with_more_clips() -> None:
    assert wilson(50, 100) == pytest.approx((40.38, 59.62), abs=0.01)  # a textbook value
    few, many = measurement_of(2, 200), measurement_of(2, 4000)
    for measured in (few, many):
        low, high = measured.loss_interval()
        assert low < 2 < high
        low, high = measured.accuracy_interval()
        assert low < 98 < high
    assert np.diff(many.loss_interval()) < np.diff(few.loss_interval())
    assert many.loss_error == pytest.approx(100 * np.sqrt(0.02 * 0.98 / 4000))


def test_losses_along_a_front_are_made_monotone() -> None:
    costs, losses = [5.0, 8.0, 10.0, 12.0], [4.0, 0.5, 1.5, 0.0]
    front = [measurement_of(loss, macs=cost) for loss, cost in zip(losses, costs, strict=True)]
    estimated = estimate(front, costs)
    assert [c.loss for c in estimated] == pytest.approx([4.0, 1.0, 1.0, 0.0])


def candidates() -> list[Candidate]:
    pairs = ((0.0, 20.0), (0.2, 14.0), (1.0, 9.0), (4.0, 6.0))
    return [Candidate(measurement_of(loss, 40_000, macs), macs, loss) for loss, macs in pairs]


def test_the_goal_decides_what_is_chosen() -> None:
    front = candidates()
    assert choose(front, Goals(max_loss=0.5)).cost == 14
    assert choose(front, Goals(max_macs=10)).loss == 1.0
    assert choose(front, Goals(agree=98.5)).cost == 9
    assert choose(front, Goals(max_loss=2, max_macs=15)).cost == 9
    assert choose(front, Goals(max_loss=0)).cost == 20


def test_an_unreachable_budget_names_the_nearest_settings() -> None:
    with pytest.raises(Unreachable, match=r"0\.20 points at 14\.00%.*4\.00 points at 6\.00%"):
        choose(candidates(), Goals(max_loss=0.5, max_macs=8))


@pytest.mark.parametrize(
    ("goals", "message"),
    [
        (Goals(max_loss=1, agree=99), "exclude each other"),
        (Goals(max_macs=10, max_ms=1), "exclude each other"),
        (Goals(max_macs=1), "always runs 1\\.[0-9]+%"),
        (Goals(max_loss=-1), "--max-loss -1"),
        (Goals(agree=101), "--agree 101"),
        (Goals(max_ms=0), "--max-ms 0"),
        (Goals(max_macs=10, by_time=True), "--cost ms exclude"),
    ],
)
def test_goals_that_cannot_be(goals: Goals, message: str) -> None:
    with pytest.raises(DeltakwtError, match=message):
        goals.check(KWT1)


def test_sites_by_name() -> None:
    assert parse_sites("all") == SITES
    assert parse_sites("softmax,x") == ("x", "softmax")
    with pytest.raises(DeltakwtError, match="unknown site 'y'; sites are x, q"):
        parse_sites("x,y")


def test_a_table_keeps_front_end_and_dense_sites() -> None:
    setting = Setting(Thresholds(x=0.2, softmax=(0.1, 0.2)), FrontEndSetting(True))
    table = threshold_table(setting, 2)
    table[:, 0] *= 2
    after = with_table(setting, table)
    assert after == Setting(Thresholds(x=(0.4, 0.4), softmax=(0.1, 0.2)), FrontEndSetting(True))


def test_a_screening_experiment_tells_every_threshold_apart() -> None:
    matrix = hadamard(16)
    assert np.array_equal(matrix.T @ matrix, 16 * np.eye(16))


def test_slopes_find_that_higher_thresholds_save(engine: Engine, pool: Pool) -> None:
    pool = pool.stratified(seed=0)
    evaluator = Evaluator(SMALL, engine, pool, MIX)
    found = slopes(evaluator, Setting(Thresholds(*[0.3] * 8)), 30)
    assert found.saving[0, SITES.index("x")] > 0
    # The last layer's class token is exact: only its inputs and keys have thresholds.
    alone = [i for i, site in enumerate(SITES) if site not in ("x", "k")]
    assert not found.saving[-1, alone].any()


def test_a_step_raises_cheap_thresholds_and_lowers_expensive_ones() -> None:
    loss, saving = np.full((2, 8), 0.01), np.full((2, 8), 0.1)
    loss[0, 0], loss[1, 1] = 1.0, 0.0001
    table = threshold_table(moved(SETTING, Slopes(loss, saving, 0.0, 20.0), target=20.0), 2)
    assert table[0, 0] < 0.1 < table[1, 1]
    cheaper = threshold_table(moved(SETTING, Slopes(loss, saving, 0.0, 20.0), target=19.5), 2)
    assert (cheaper >= table).all()
    assert cheaper.sum() > table.sum()


def test_adjusting_keeps_one_threshold_for_all_layers_and_the_cost(
    engine: Engine, pool: Pool
) -> None:
    evaluator = Evaluator(SMALL, engine, pool.stratified(seed=0), MIX)
    before = Setting(Thresholds.parse("0.3_0.3_0.3_0.1_0.004_0.1"))
    after = adjusted(evaluator, before, 40, steps=2)
    assert after.thresholds is not None
    assert after != before
    assert set(after.thresholds.to_json()) == set(SITES[:6])
    assert all(isinstance(value, float) for value in after.thresholds.to_json().values())
    assert evaluator.measure(after).macs == pytest.approx(evaluator.measure(before).macs, rel=0.1)


def in_two_groups(words: float, telephone: float, macs: float, clips: int = 400) -> Measurement:
    """Return a setting that loses these percentages of two groups of `clips` each."""
    one, two = measurement_of(words, clips, macs), measurement_of(telephone, clips, macs)
    both = {
        name: np.concatenate([getattr(one, name), getattr(two, name)])
        for name in ("right", "dense_right", "error", "dense_error", "divergence", "percent")
    }
    weight = np.repeat([0.95 / clips, 0.05 / clips], clips)
    groups = np.repeat([GROUPS.index("words"), GROUPS.index("telephone")], clips)
    return replace(
        one, **both, mhsa_percent=both["percent"], weight=weight, cost_weight=weight, groups=groups
    )


def test_a_setting_that_is_bad_on_a_telephone_is_not_chosen() -> None:
    cheap, dear = in_two_groups(0.0, 12.0, 10.0), in_two_groups(0.0, 0.5, 20.0)
    front = [Candidate(m, m.macs, m.blended_loss) for m in (cheap, dear)]
    assert cheap.loss < 1  # over the mix it would do
    assert groups_over(cheap, 1.0) == ["telephone"]
    assert choose(front, Goals(max_loss=1)).measurement is dear
    with pytest.raises(Unreachable, match="group telephone"):
        choose(front[:1], Goals(max_loss=1))
    assert choose(front, Goals(max_macs=15)).measurement is cheap  # no limit of the loss
    assert not groups_over(in_two_groups(0.0, 12.0, 10.0, clips=49), 1.0)  # too few to tell
    assert not groups_over(in_two_groups(0.0, 1.5, 10.0), 1.0)  # within the sampling error


def test_profiles_of_the_model_are_candidates_if_the_search_could_find_them(
    engine: Engine,
) -> None:
    smooth = replace(SETTING, front_end=FrontEndSetting(smooth=True))
    profiles = Profiles({"a": Profile("a", SETTING), "b": Profile("b", smooth)})
    model = Model(SMALL, engine, profiles)
    options = TuningOptions(
        Goals(), MIX, MIX, SITES, None, 1, 10, refine=False, seed=0, storage="", study="", name=""
    )
    assert known_settings(model, options) == [SETTING, smooth]
    assert known_settings(model, replace(options, front_end=smooth.front_end)) == [smooth]
    assert known_settings(model, replace(options, sites=SITES[:6])) == []


def test_mcnemar_is_the_exact_binomial_test() -> None:
    assert mcnemar(0, 0) == 1
    assert mcnemar(5, 5) == 1
    assert mcnemar(10, 2) == pytest.approx(0.03857, abs=1e-5)  # a textbook value
    assert mcnemar(2, 10) == mcnemar(10, 2)
    assert mcnemar(300, 200) < 1e-4
