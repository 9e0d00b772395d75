"""Where a study lives: Optuna's own storages, opened, checked and guarded.

`sqlite:///FILE` (or a path ending in .db), `postgresql://...` and `journal:FILE` on a shared disk.
Any number of processes may work on one study.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltakwt.core.errors import DeltakwtError, MissingExtra

if TYPE_CHECKING:
    import optuna

PURPOSE = "deltakwt"  # the attribute under which a study says what it is a study of


class StorageFailed(DeltakwtError):
    """The database went away: the run failed, not the user."""

    exit_code = 1


def need_optuna() -> None:
    """Say what to install, or quieten it."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("deltakwt tune", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def open_storage(url: str) -> optuna.storages.BaseStorage:
    """The storage behind `--storage`."""
    need_optuna()
    import optuna

    kind, _, rest = url.partition(":")
    with guarded(url):
        if kind == "journal":
            from optuna.storages.journal import JournalFileBackend

            _folder_exists(url, Path(rest))
            return optuna.storages.JournalStorage(JournalFileBackend(rest))
        if "://" not in url:
            url = f"sqlite:///{url}"
        if url.startswith("sqlite:///"):
            _folder_exists(url, Path(url.removeprefix("sqlite:///")))
        elif url.startswith(("postgresql://", "postgres://")):
            _need_psycopg()
            url = "postgresql+psycopg://" + url.partition("://")[2]
        elif not url.startswith("postgresql+psycopg://"):
            raise DeltakwtError(
                f"--storage {url}: give a SQLite file, postgresql://... or journal:FILE"
            )
        return optuna.storages.RDBStorage(url)


def _folder_exists(url: str, file: Path) -> None:
    if not file.parent.is_dir():
        raise DeltakwtError(f"--storage {url}: no such folder {file.parent}")


def _need_psycopg() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtra("PostgreSQL storage", "tune") from None


def open_study(url: str, name: str, facts: dict[str, Any], *, join: bool) -> optuna.Study:
    """Create the study or go on with it. `facts` (model, clips, mix, sites) must be its own.

    `join` demands that it exists.
    """
    storage = open_storage(url)
    import optuna

    with guarded(url):
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
            raise DeltakwtError(f"--join {name}: no such study in {url} (there: {known})") from None
        _check_facts(study, name, facts, created=not join)
    return study


def _check_facts(study: optuna.Study, name: str, facts: dict[str, Any], created: bool) -> None:
    theirs = study.user_attrs.get(PURPOSE)
    if theirs is None:
        if study.get_trials(deepcopy=False) or not created:
            raise DeltakwtError(f"study {name}: is not a study of deltakwt; choose another --study")
        study.set_user_attr(PURPOSE, facts)
        return
    for key, value in facts.items():
        if theirs.get(key) != value:
            raise DeltakwtError(
                f"study {name}: is of another {key} ({theirs.get(key)}, here {value});"
                " choose another --study"
            )


@contextmanager
def guarded(url: str) -> Iterator[None]:
    """Turn the many ways a database fails into one line."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError, OSError) as error:
        cause = error.__cause__ or error
        reason = " ".join(str(cause).split()).partition(" (Background on")[0][:200]
        raise StorageFailed(
            f"--storage {without_password(url)}: the database cannot be used ({reason});"
            " finished trials are kept in it: run the same command again to go on"
        ) from error


def without_password(url: str) -> str:
    """postgresql://me:secret@host/db -> postgresql://me@host/db; anything else as it is."""
    head, at, tail = url.rpartition("@")
    if not at or "://" not in head:
        return url
    scheme, _, user = head.partition("://")
    return f"{scheme}://{user.partition(':')[0]}@{tail}"
