"""Passwords of databases are masked wherever a URL or a driver's message is printed."""

from __future__ import annotations

import time

import pytest

from deltakwt import provenance
from deltakwt.core.errors import DeltakwtError
from deltakwt.text import mask_passwords
from deltakwt.tune.storage import open_storage


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://me:s3cret@h/db", "postgresql://me:***@h/db"),
        ("postgresql+psycopg://me:s3cret@h:5432/db", "postgresql+psycopg://me:***@h:5432/db"),
        ("postgresql://h/db?user=me&password=s3cret", "postgresql://h/db?user=me&password=***"),
        ("postgresql://h/db?password=s3cret&user=me", "postgresql://h/db?password=***&user=me"),
        ("postgresql://h/db?p%61ssword=s3cret", "postgresql://h/db?p%61ssword=***"),
        ("postgresql://h/db?PASSWORD=s3=cret", "postgresql://h/db?PASSWORD=***"),
        ("postgresql://a:s3cret@h/db?sslpassword=x", "postgresql://a:***@h/db?sslpassword=***"),
        ("postgresql://me:s3@c/r?et@h/db", "postgresql://me:***@h/db"),
        ("postgresql://me:s3 cret@h/db", "postgresql://me:***@h/db"),
        ("host=h password = s3cret", "host=h password = ***"),
        (
            "postgresql://h/db?options=-c%20password%3Ds3cret",
            "postgresql://h/db?options=-c%20password%3D***",
        ),
        (
            "postgresql://h/db?oauth_client_secret=s3cret",
            "postgresql://h/db?oauth_client_secret=***",
        ),
        ("postgresql://h/db?pwd=s3cret&a=b", "postgresql://h/db?pwd=***&a=b"),
        ("postgresql://h/db?auth_token=s3cret", "postgresql://h/db?auth_token=***"),
    ],
)
def test_passwords_are_masked(url: str, masked: str) -> None:
    assert mask_passwords(url) == masked
    assert mask_passwords(f"--storage={url}") == f"--storage={masked}"


def test_long_messages_are_masked_at_once() -> None:
    """The text of a server may be made to take minutes."""
    started = time.process_time()
    for text in ("%", "a", "pass", "a.", "pass%3"):
        mask_passwords(text * (20_000 // len(text)))
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://tuner@host:5432/studies",
        "postgresql://host/db?user=me",
        "sqlite:////tmp/a:b@c.db",
        "journal:/shared/study.log",
        "words=10,unknown=1,zero=1",
        "tune",
    ],
)
def test_other_text_is_left_alone(text: str) -> None:
    assert mask_passwords(text) == text


def test_the_message_of_a_driver_is_masked_by_the_url() -> None:
    url = "postgresql://me:p%40ss%21word@h/db"
    text = 'cannot log in as "me" with "p@ss!word" or p%40ss%21word'
    assert mask_passwords(text, url) == 'cannot log in as "me" with "***" or ***'
    assert "et@" not in mask_passwords("no host 'et@h'", "postgresql://me:s3cr@et@h/db")
    assert "s3cret" not in mask_passwords("no host 's3cret'", "postgresql://me:a@s3cret/x@h/db")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=me&password=s3cret",
        "postgresql://me:s3cret@127.0.0.1:port/db",
        "postgresql://me:s3cret@[::1/db",
        "postgresql://127.0.0.1:1/db?PASSWORD=s3cret",
        "mysql://me:s3cret@h/db",
        "s3cret://me:s3cret/no/such@folder",
    ],
)
def test_no_error_of_a_storage_holds_the_password(url: str) -> None:
    pytest.importorskip("psycopg", reason="needs psycopg")
    with pytest.raises(DeltakwtError, match="--storage") as caught:
        open_storage(url)
    assert "s3cret" not in str(caught.value).replace("s3cret://", "")
    assert caught.value.__cause__ is None


def test_the_command_that_results_state_holds_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://me:s3cret@host/studies"
    monkeypatch.setattr("sys.argv", ["deltakwt", "tune", "--storage", url, "--mix", "words=1"])
    stated = provenance.command()
    assert "s3cret" not in stated
    assert stated.endswith("@host/studies' --mix words=1")
