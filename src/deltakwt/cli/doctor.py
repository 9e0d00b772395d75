"""`deltakwt doctor`: check the installation."""

from __future__ import annotations

import typer

from deltakwt.cli.common import console, print_json, table
from deltakwt.cli.options import JsonOption


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("doctor")(doctor)


def doctor(json: JsonOption = False) -> None:
    """Check the installation: processor, kernels, extras, self-test.

    The exit code is 1 if a self-test fails.
    """
    from deltakwt.core.errors import install_line
    from deltakwt.doctor import examine

    found = examine()
    if json:
        print_json(found)
    else:
        rows = table("", "deltakwt", found["version"])
        keys = ("python", "machine", "cpu", "cpu_features", "kernels", "chosen_kernels", "models")
        for key in keys:
            value = found[key]
            text = value if isinstance(value, str) else " ".join(value) or "none"
            rows.add_row(key.replace("_", " "), text)
        for name, there in found["extras"].items():
            rows.add_row(f"extra {name}", "yes" if there else install_line(name))
        for test in found["self_test"]:
            rows.add_row(test["test"], f"{'ok' if test['ok'] else 'FAILED'}: {test['found']}")
        console().print(rows)
    if not found["ok"]:
        raise typer.Exit(1)
