"""The meter reads now, the last minute and ever, in constant memory."""

from __future__ import annotations

import pytest

from deltakwt.listen.meter import Meter, Tally

SECOND = 16_000


def test_three_spans() -> None:
    meter = Meter(dense_macs=100)
    for second in range(200):
        macs = 1000 if second < 100 else 100 if second < 199 else 0
        for _ in range(10):
            meter.add(Tally(SECOND // 10, 1, 1, macs // 10, 0.001))
    assert meter.ever.seconds == 200
    assert meter.ever.macs_percent == pytest.approx((100 * 100 + 99 * 10) / 200)
    assert meter.minute.seconds == pytest.approx(60, abs=1)
    assert meter.minute.macs_percent == pytest.approx(10 * 59 / 60, abs=0.2)
    assert meter.now.seconds == pytest.approx(1, abs=0.2)
    assert meter.now.macs_percent < 2
    assert meter.now.cpu_percent == pytest.approx(1)
    assert meter.now.macs_per_second < 20


def test_memory_is_a_minute_whatever_the_duration() -> None:
    meter = Meter(1)
    for _ in range(2000):
        meter.add(Tally(SECOND, 10, 10, 1, 0.0))
    assert len(meter._seconds) <= 61


def test_an_unused_meter_reads_zero() -> None:
    assert Meter(5).to_json()["ever"] == {
        "seconds": 0.0,
        "windows": 0,
        "macs_percent": 0.0,
        "macs_per_second": 0,
        "reused_percent": 0.0,
        "cpu_percent": 0.0,
    }


def test_time_spent_around_the_model_belongs_to_what_was_heard_last() -> None:
    meter = Meter(100)
    meter.spend(0.5)  # before anything was heard: only ever
    meter.add(Tally(SECOND, 10, 1, 1, 0.01))
    meter.spend(0.02)
    assert meter.now.cpu_percent == pytest.approx(3.0)
    assert meter.ever.cpu_percent == pytest.approx(53.0)
