"""The torch model is the paper's model, and thresholds in the loop are the delta algorithm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import reconstruct as oracle
import torch
import torch.nn.functional as F

from deltakwt.audio import read_clip
from deltakwt.core import reference
from deltakwt.core.config import KWT0, KWT1, KWT2, KWT3, Config
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import dense_macs
from deltakwt.core.native import available_isas
from deltakwt.core.setting import Setting, Thresholds
from deltakwt.train import delta
from deltakwt.train.features import mel_energies, mfcc
from deltakwt.train.grow import grow
from deltakwt.train.net import Kwt, gelu
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve

SMALL = Config(dim=16, heads=2, mlp=32, layers=3)
THRESHOLDS = Thresholds.parse("0.3_0.2_0.2_0.1_0.002_0.1_0.3_0.1")


def arrays(net: Kwt) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in net.state().items()}


def features(count: int, seed: int = 0) -> np.ndarray:
    """(count, 98, 40): a slow walk, as the features of sound are."""
    steps = np.random.default_rng(seed).standard_normal((count, 98, 40))
    return (0.3 * steps.cumsum(axis=1)).astype(np.float32)


def test_dense_logits_equal_those_of_the_reference() -> None:
    net, x = Kwt(SMALL, seed=3), features(2)
    with torch.no_grad():
        ours = net(torch.from_numpy(x)).numpy()
    for row, clip in zip(ours, x, strict=True):
        np.testing.assert_allclose(row, reference.dense(SMALL, arrays(net), clip), atol=1e-4)


def test_thresholds_in_the_loop_give_the_logits_of_the_delta_algorithm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In 64 bits rounding cannot decide what is kept; the native scan has 32 bits.
    monkeypatch.setattr(delta, "reconstruct", delta._reconstruct_in_torch)
    net, x = Kwt(SMALL, seed=3).double(), features(4).astype(np.float64)
    rewrite = delta.thresholds_in_the_loop(THRESHOLDS, SMALL.layers)
    with torch.no_grad():
        ours = net(torch.from_numpy(x), rewrite=rewrite).numpy()
    theirs = oracle.delta(SMALL, arrays(net), x, THRESHOLDS).logits
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 98, 16), (2, 2, 99, 99), (5, 1, 8), (1, 2, 7), (0, 98, 4)])
def test_the_native_scan_is_the_references_scan(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal(shape).cumsum(axis=-2).astype(np.float32)
    expected, _ = oracle.reconstruct(x, 0.7)
    np.testing.assert_array_equal(delta.reconstruct(torch.from_numpy(x), 0.7).numpy(), expected)
    elsewhere = delta._reconstruct_in_torch(torch.from_numpy(x), 0.7)
    np.testing.assert_array_equal(elsewhere.numpy(), expected)


def test_the_native_scan_takes_rows_that_are_not_contiguous() -> None:
    x = torch.randn(4, 3, 98).cumsum(2).transpose(1, 2)
    expected, _ = oracle.reconstruct(x.numpy(), 0.5)
    np.testing.assert_array_equal(delta.reconstruct(x, 0.5).numpy(), expected)


def test_the_gradient_passes_the_thresholds_unchanged() -> None:
    rows = torch.randn(2, 9, 4, requires_grad=True)
    rewrite = delta.thresholds_in_the_loop(Thresholds(x=1.0), layers=1)
    rewrite("x", 0, rows).sum().backward()
    assert rows.grad is not None
    assert torch.equal(rows.grad, torch.ones_like(rows))


def soft_macs(net: Kwt, x: torch.Tensor) -> torch.Tensor:
    penalty = delta.MacPenalty(SMALL)
    net(x, rewrite=delta.thresholds_in_the_loop(THRESHOLDS, SMALL.layers, penalty=penalty))
    return penalty.total


def test_the_penalty_counts_nothing_for_a_constant_sound_and_all_for_a_wild_one() -> None:
    net = Kwt(SMALL, seed=3)
    net.load(net.state() | {"positions": torch.zeros(99, SMALL.dim)})
    wild = 100 * torch.randn(2, 98, 40, generator=torch.Generator().manual_seed(1))
    assert soft_macs(net, wild[:, :1].expand(2, 98, 40)) < 1e-3
    assert 0.4 < soft_macs(net, wild) < 0.7  # the last of three layers asks one query


def test_minimising_the_penalty_saves_executed_macs() -> None:
    net, x = Kwt(SMALL, seed=3), features(4)
    optimiser = torch.optim.SGD(net.parameters(), 0.3)
    executed = []
    for _ in range(20):
        executed.append(oracle.delta(SMALL, arrays(net), x, THRESHOLDS).macs.sum())
        optimiser.zero_grad()
        soft_macs(net, torch.from_numpy(x)).backward()
        optimiser.step()
    assert executed[-1] < 0.8 * executed[0]


def test_gelu_and_its_gradient_are_torchs() -> None:
    ours = torch.linspace(-30, 30, 4001, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    gelu(ours).pow(2).sum().backward()
    F.gelu(theirs, approximate="tanh").pow(2).sum().backward()
    torch.testing.assert_close(gelu(ours), F.gelu(theirs, approximate="tanh"))
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_frames_left_out_take_their_positions_with_them() -> None:
    net, x = Kwt(SMALL, seed=3), torch.from_numpy(features(2))
    with torch.no_grad():
        assert torch.allclose(net(x, torch.arange(98)), net(x), atol=1e-5)
        some = torch.arange(0, 98, 2)
        changed = x.clone()
        changed[:, 1::2] = 100.0  # frames that are not chosen have no effect
        assert torch.equal(net(x, some), net(changed, some))


def widened(wide: Config) -> tuple[Kwt, Kwt, torch.Tensor]:
    """Return the shipped kwt-1, a widened one, and features of the ten example words."""
    clips = sorted((Path(__file__).parents[2] / "examples/clips").glob("*.flac"))
    words = [clip for clip in clips if clip.stem in KWT1.labels]
    x = mfcc(mel_energies(torch.from_numpy(np.stack([read_clip(clip) for clip in words]))))
    shipped = load_weights(resolve("kwt-1"))
    narrow, grown = Kwt(KWT1), Kwt(wide)
    narrow.load({name: torch.from_numpy(tensor) for name, tensor in shipped.tensors.items()})
    tensors = grow(KWT1, shipped.tensors, wide, seed=2)
    grown.load({name: torch.from_numpy(tensor) for name, tensor in tensors.items()})
    return narrow, grown, x


@pytest.mark.parametrize("wide", [KWT2, KWT3])
def test_a_widened_model_begins_with_the_answers_of_the_narrow_one(wide: Config) -> None:
    narrow, grown, x = widened(wide)
    with torch.no_grad():
        same = narrow(x).argmax(1) == grown(x).argmax(1)
    assert len(x) == 10
    assert same.sum() >= 8


def test_new_features_are_no_copies_and_do_not_reach_the_narrow_ones() -> None:
    _, grown, x = widened(KWT3)
    with torch.no_grad():
        middle = grown.layers(x)[7].flatten(0, 1)  # (tokens, 192)
        spread = torch.linalg.svdvals(middle - middle.mean(0)).square()
        needed = int((spread.cumsum(0) / spread.sum() < 0.99).sum()) + 1
    assert needed > 64
    for name in ("q", "k", "v", "proj", "mlp_in", "mlp_out"):
        weight = grown.tensors[f"blocks.3.{name}.weight"]
        rows, columns = weight.shape[0] // 3, weight.shape[1] // 3
        assert not weight[rows:, :columns].any()
        assert weight[:rows, columns:].any()


def test_a_model_is_widened_by_whole_multiples_only() -> None:
    with pytest.raises(DeltakwtError, match="cannot grow"):
        grow(KWT2, arrays(Kwt(KWT2)), KWT3)


def test_kwt_0_is_small() -> None:
    assert sum(np.prod(shape) for shape in KWT0.shapes().values()) <= 130_000
    assert dense_macs(KWT0).sum() <= 9_000_000


@pytest.mark.parametrize("isa", available_isas())
def test_the_engine_runs_kwt_0_as_the_reference_and_training_do(isa: str) -> None:
    net, x = Kwt(KWT0, seed=3), features(2)[:, : KWT0.frames]
    engine = Engine(KWT0, arrays(net), isa)
    with torch.no_grad():
        trained = net(torch.from_numpy(x)).numpy()
    for row, clip in zip(trained, x, strict=True):
        expected = reference.dense(KWT0, arrays(net), clip)
        np.testing.assert_allclose(row, expected, atol=1e-4)
        np.testing.assert_allclose(engine.dense(clip), expected, atol=1e-4)
    run = engine.batch(x, Setting(Thresholds.parse("0_0_0_0_0_0_0_0")))
    np.testing.assert_allclose(run.logits, trained, atol=1e-4)
    kept = reference.delta(KWT0, arrays(net), x[0], THRESHOLDS)
    np.testing.assert_allclose(
        engine.delta(x[0], THRESHOLDS).macs.sum(), kept.macs.sum(), rtol=0.01
    )
