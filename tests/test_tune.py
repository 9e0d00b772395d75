"""The parts of a tuning: mixes, pools, fronts, goals, intervals, the refinement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltakwt.core.config import KWT1, Config
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import dense_macs
from deltakwt.core.setting import SITES, FrontEndSetting, Thresholds
from deltakwt.tune.front import dominated, hypervolume, pareto
from deltakwt.tune.goals import Candidate, Goals, Unreachable, choose, estimate
from deltakwt.tune.intervals import accuracy_interval, loss_interval, wilson
from deltakwt.tune.measure import Judge, Measured
from deltakwt.tune.mix import GROUPS, Mix
from deltakwt.tune.pool import Pool
from deltakwt.tune.refine import Slopes, hadamard, moved, slopes
from deltakwt.tune.search import rungs
from deltakwt.tune.space import Point, parse_sites
from deltakwt.tune.sweep import PAPER_GRID, parse_grid, settings, subset_of
from deltakwt.weights.folder import random_tensors

SMALL = Config(dim=16, heads=2, mlp=32, layers=2)
POINT = Point(Thresholds(*[0.1] * 8))


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


def test_mix_weights_sum_to_one_and_tell_what_is_wrong() -> None:
    mix = Mix.parse("words=10,unknown=1,zero=1")
    assert sum(mix.weights) == pytest.approx(1)
    assert mix.groups == ("words", "unknown", "zero")
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


def test_held_out_clips_are_of_other_speakers(pool: Pool) -> None:
    kept, held = pool.hold_out(0.3, seed=0)
    assert len(kept) + len(held) == len(pool)
    assert not set(kept.sources) & set(held.sources)


def test_a_group_weighs_what_the_mix_says_however_many_clips_it_has(pool: Pool) -> None:
    weights = pool.weights(Mix.parse("words=3,noise=1"), pool.window(None))
    assert weights[:40].sum() == pytest.approx(0.75)
    assert weights[-7:].sum() == pytest.approx(0.25)


def test_a_judge_finds_no_loss_at_threshold_zero(engine: Engine, pool: Pool) -> None:
    judge = Judge(SMALL, engine, pool, Mix.parse("words=10,unknown=1,zero=1"))
    measured = judge.measure(Point(Thresholds(*[0.0] * 8)))
    assert measured.loss == pytest.approx(0)
    assert measured.kl == pytest.approx(0, abs=1e-4)
    assert measured.soft_loss == pytest.approx(0, abs=1e-2)
    coarse = judge.measure(POINT)
    assert coarse.macs < measured.macs <= 100
    whole = dense_macs(SMALL).sum()
    counted = engine.batch(pool.features(engine), thresholds=POINT.thresholds).macs
    assert counted is not None
    assert coarse.percent == pytest.approx(100 * counted.sum(axis=(1, 2)) / whole)


def test_without_labels_the_dense_answer_is_the_target(engine: Engine, pool: Pool) -> None:
    unlabelled = Pool("own", pool.audio, pool.groups * 0, pool.targets * 0 - 1, pool.sources)
    measured = Judge(SMALL, engine, unlabelled, Mix.parse("words=1")).measure(POINT)
    assert measured.dense_accuracy == pytest.approx(100)
    dense = engine.batch(pool.features(engine)).logits.argmax(axis=1)
    delta = engine.batch(pool.features(engine), thresholds=POINT.thresholds).logits.argmax(axis=1)
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


def test_hypervolume_grows_with_the_front() -> None:
    assert hypervolume([(1, 1)], (2, 2)) == pytest.approx(1)
    assert hypervolume([(1, 1), (0, 1.5)], (2, 2)) == pytest.approx(1.5)
    assert dominated((1.0, 5.0), [(0.2, 4.0)], slack=0.5)
    assert not dominated((1.0, 5.0), [(0.2, 4.0)], slack=1.0)


def test_rungs_grow_to_all_clips() -> None:
    assert rungs(800)[-1] == 800
    assert rungs(800) == sorted(set(rungs(800)))
    assert rungs(60) == [60]


def made(loss_of: float, count: int = 400, macs: float = 10.0) -> Measured:
    """A setting that loses a share of `count` clips, all of which dense has right."""
    right = np.arange(count) >= round(count * loss_of / 100)
    even, nothing = np.full(count, 1 / count), np.zeros(count)
    return Measured(
        POINT,
        right,
        np.ones(count, bool),
        1.0 - right,
        nothing,
        nothing,
        np.full(count, macs),
        np.full(count, macs),
        even,
        even,
        np.zeros(count, int),
    )


def test_intervals_hold_the_figure_and_narrow_with_more_clips() -> None:
    assert wilson(50, 100) == pytest.approx((40.38, 59.62), abs=0.01)  # a textbook value
    few, many = made(2, 200), made(2, 4000)
    for measured in (few, many):
        low, high = loss_interval(measured)
        assert low < 2 < high
        low, high = accuracy_interval(measured)
        assert low < 98 < high
    assert np.diff(loss_interval(many)) < np.diff(loss_interval(few))
    assert many.loss_error == pytest.approx(100 * np.sqrt(0.02 * 0.98 / 4000))


def test_losses_along_a_front_are_made_monotone() -> None:
    costs, losses = [5.0, 8.0, 10.0, 12.0], [4.0, 0.5, 1.5, 0.0]
    front = [made(loss, macs=cost) for loss, cost in zip(losses, costs, strict=True)]
    estimated = estimate(front, costs)
    assert [c.loss for c in estimated] == pytest.approx([4.0, 1.0, 1.0, 0.0])


def candidates() -> list[Candidate]:
    pairs = ((0.0, 20.0), (0.2, 14.0), (1.0, 9.0), (4.0, 6.0))
    return [Candidate(made(loss, 40_000, macs), macs, loss) for loss, macs in pairs]


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
    point = Point(Thresholds(x=0.2, softmax=(0.1, 0.2)), FrontEndSetting(True))
    table = point.table(2)
    table[:, 0] *= 2
    after = point.with_table(table)
    assert after.thresholds == Thresholds(x=(0.4, 0.4), softmax=(0.1, 0.2))
    assert after.steady == FrontEndSetting(True)
    assert Point.from_json(after.to_json()) == after


def test_a_screening_experiment_tells_every_threshold_apart() -> None:
    matrix = hadamard(16)
    assert np.array_equal(matrix.T @ matrix, 16 * np.eye(16))


def test_slopes_find_that_higher_thresholds_save(engine: Engine, pool: Pool) -> None:
    pool = pool.stratified(seed=0)
    judge = Judge(SMALL, engine, pool, Mix.parse("words=10,unknown=1,zero=1"))
    found = slopes(judge, Point(Thresholds(*[0.3] * 8)), 30)
    assert found.saving[0, SITES.index("x")] > 0
    # The last layer's class token is exact: only its inputs and keys have thresholds.
    alone = [i for i, site in enumerate(SITES) if site not in ("x", "k")]
    assert not found.saving[-1, alone].any()


def test_a_step_raises_cheap_thresholds_and_lowers_dear_ones() -> None:
    loss, saving = np.full((2, 8), 0.01), np.full((2, 8), 0.1)
    loss[0, 0], loss[1, 1] = 1.0, 0.0001
    point = moved(POINT, Slopes(loss, saving, 0.0, 20.0), target=20.0)
    table = point.table(2)
    assert table[0, 0] < 0.1 < table[1, 1]
    cheaper = moved(POINT, Slopes(loss, saving, 0.0, 20.0), target=19.5)
    assert (cheaper.table(2) >= table).all()
    assert cheaper.table(2).sum() > table.sum()


def test_the_papers_grid_and_others() -> None:
    assert len(settings(PAPER_GRID)) == 4 * 3 * 3 * 2 * 2 * 2
    grid = parse_grid(["x=0.1,0.2", "mlp_in=0.3"])
    assert [str(p.thresholds) for p in settings(grid)] == [
        "0.1_-_-_-_-_-_0.3_-",
        "0.2_-_-_-_-_-_0.3_-",
    ]
    for axis, message in (("y=1", "unknown site"), ("x=", "give values"), ("x", "give values")):
        with pytest.raises(DeltakwtError, match=message):
            parse_grid([axis])
    with pytest.raises(DeltakwtError, match="at most"):
        settings({site: tuple(float(v) for v in range(5)) for site in SITES})


def test_a_subset_has_the_same_number_of_each_class(pool: Pool) -> None:
    small = subset_of(pool, 24)
    counts = np.bincount(small.targets)
    assert counts.max() <= 2
    assert (counts > 0).all()
