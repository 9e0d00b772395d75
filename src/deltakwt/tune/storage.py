"""The database of a study: `FILE.db` or `sqlite:///FILE`, `postgresql://...`, or `journal:FILE`.

A failure of the database becomes one line without passwords. Signals wait until a query has ended:
an exception in the middle of one would leave the database locked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltakwt.core.errors import DeltakwtError, MissingExtra
from deltakwt.locks import DeferredSignals, signals_deferred
from deltakwt.text import mask_passwords

if TYPE_CHECKING:
    import optuna

FACTS = "deltakwt"  # the attribute of a study that says which model and data it is about


class StorageFailed(DeltakwtError):
    """The database cannot be used. The input is right, so the exit code is 1."""

    exit_code = 1


def need_optuna() -> None:
    """Check that Optuna is installed, and turn off its log and that of its database."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("deltakwt tune", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)  # Optuna logs every Ctrl-C


def open_storage(url: str) -> optuna.storages.BaseStorage:
    """Return the storage that `--storage` names."""
    need_optuna()
    import optuna

    kind, _, rest = url.partition(":")
    with database(url):
        if kind == "journal":
            from optuna.storages.journal import JournalFileBackend

            _check_folder(url, Path(rest))
            return optuna.storages.JournalStorage(JournalFileBackend(rest))
        address = url if "://" in url else f"sqlite:///{url}"
        if address.startswith("sqlite:///"):
            _check_folder(url, Path(address.removeprefix("sqlite:///")))
        elif address.startswith(("postgresql://", "postgres://")):
            _need_psycopg()
            address = "postgresql+psycopg://" + address.partition("://")[2]
        elif not address.startswith("postgresql+psycopg://"):
            raise DeltakwtError(
                f"--storage {mask_passwords(url)}: give a SQLite file, postgresql://... or"
                " journal:FILE"
            )
        # A server that was restarted since the last query costs a new connection, not the run.
        return optuna.storages.RDBStorage(address, engine_kwargs={"pool_pre_ping": True})


def _check_folder(url: str, file: Path) -> None:
    if not file.parent.is_dir():
        raise DeltakwtError(f"--storage {mask_passwords(url)}: no such folder {file.parent}")


def _need_psycopg() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtra("PostgreSQL storage", "tune") from None


def open_study(url: str, name: str, facts: dict[str, Any], *, join: bool) -> optuna.Study:
    """Create the study or continue it. `facts` (model, clips, mix, sites) must equal its own.

    With `join` the study must exist.
    """
    storage = open_storage(url)
    import optuna

    with database(url):
        try:
            if join:
                study = optuna.load_study(study_name=name, storage=storage)
            else:
                study = optuna.create_study(
                    study_name=name,
                    storage=storage,
                    directions=["minimize", "minimize"],
                    load_if_exists=True,
                )
        except KeyError:
            known = ", ".join(sorted(optuna.get_all_study_names(storage))) or "none"
            raise DeltakwtError(
                f"--join {name}: no such study in {mask_passwords(url)} (there: {known})"
            ) from None
        _check_facts(study, name, facts, created=not join)
    return study


def _check_facts(study: optuna.Study, name: str, facts: dict[str, Any], created: bool) -> None:
    theirs = study.user_attrs.get(FACTS)
    if theirs is None:
        if study.get_trials(deepcopy=False) or not created:
            raise DeltakwtError(f"study {name}: is not a study of deltakwt; choose another --study")
        study.set_user_attr(FACTS, facts)
        return
    for key, value in facts.items():
        if theirs.get(key) != value:
            raise DeltakwtError(
                f"study {name}: is of another {key} ({theirs.get(key)}, here {value});"
                " give the same, or choose another --study"
            )


@contextmanager
def database(url: str) -> Iterator[DeferredSignals]:
    """Turn failures of a database into one line without passwords; defer signals meanwhile."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with signals_deferred() as signals:
            yield signals
    except (SQLAlchemyError, StorageInternalError, OSError) as error:
        raise _failed(url, error.__cause__ or error) from None
    except ValueError as error:  # a port that is no number, a password that cannot be decoded
        if "://" not in url:
            raise
        raise _failed(url, error) from None


def _failed(url: str, cause: BaseException) -> StorageFailed:
    # Without the original exception: its message may hold the password.
    reason = " ".join(mask_passwords(str(cause), url).split()).partition(" (Background on")[0]
    return StorageFailed(
        f"--storage {mask_passwords(url)}: the database cannot be used ({reason[:200]});"
        " finished trials are stored in it: run the same command again to continue"
    )
