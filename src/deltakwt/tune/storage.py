"""Where a study is stored: Optuna's storages, opened and checked, with errors of one line.

`FILE.db` or `sqlite:///FILE`, `postgresql://...`, and `journal:FILE` on a shared disk. Any number
of processes may work on one study. Passwords in a URL are never stored and never printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltakwt.core.errors import DeltakwtError, MissingExtra

if TYPE_CHECKING:
    import optuna

FACTS = "deltakwt"  # the attribute of a study that says which model and data it is about
MASK = "***"

# scheme://user:PASSWORD@host. Like SQLAlchemy, allow / and ? in the password.
_USERINFO = re.compile(r"(\w[\w+.-]*://[^:/@]*:)(.*)@", re.DOTALL)
# password=..., sslpassword=..., passwd=...; letters of the key may be percent-encoded.
_KEY = "".join(f"(?:{c}|%{ord(c):02x}|%{ord(c.upper()):02x})" for c in "pass")
_PARAMETER = re.compile(rf"([\w%.-]*{_KEY}[\w%.-]*\s*=\s*)([^&]*)", re.IGNORECASE)


class StorageFailed(DeltakwtError):
    """The database cannot be used: the run failed, the input may be right."""

    exit_code = 1


def mask_passwords(text: str, url: str = "") -> str:
    """Return the text with *** for every password of a database URL in it.

    The passwords of `url` are replaced wherever they occur, for example in a driver's message.
    """
    secrets: list[str] = []

    def hide(found: re.Match[str]) -> str:
        secrets.append(found[2])
        # A driver may end a password at its first @ and take the rest for the host.
        secrets.extend(f"{part}@" for part in found[2].split("@")[1:])
        return found[1] + MASK + ("@" if found.re is _USERINFO else "")

    def masked(what: str) -> str:
        return _PARAMETER.sub(hide, _USERINFO.sub(hide, what))

    masked(url)
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, MASK).replace(unquote(secret), MASK)
    return masked(text)


def need_optuna() -> None:
    """Raise an error that says what to install, or silence Optuna's log."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("deltakwt tune", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def open_storage(url: str) -> optuna.storages.BaseStorage:
    """Return the storage that `--storage` names."""
    need_optuna()
    import optuna

    kind, _, rest = url.partition(":")
    with database_errors(url):
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

    with database_errors(url):
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
                " choose another --study"
            )


@contextmanager
def database_errors(url: str) -> Iterator[None]:
    """Turn every failure of a database into one line without passwords."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
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
