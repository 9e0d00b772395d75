"""`deltakwt models`: list, show, pull, import."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.cli.common import JsonOption, console, print_json, progress, table

if TYPE_CHECKING:
    from deltakwt.core.setting import Profile

NameArgument = Annotated[str, typer.Argument(metavar="M", help="A name, a folder or a .tflite.")]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    models = typer.Typer(help="Models by name: list, show, pull, import.", no_args_is_help=True)
    models.command("list")(list_models)
    models.command("show")(show)
    models.command("pull")(pull)
    models.command("import")(import_file)
    app.add_typer(models, name="models")


def list_models(json: JsonOption = False) -> None:
    """The models that can be used by name, and those that can be pulled."""
    from deltakwt.weights.registry import PULLABLE, SHIPPED, named_models

    here = named_models()
    documents = [
        {
            "name": name,
            "state": "shipped" if path.parent == SHIPPED else "pulled",
            "path": str(path),
        }
        for name, path in here.items()
    ]
    documents += [
        {"name": name, "state": "pull", "path": entry.url}
        for name, entry in PULLABLE.items()
        if name not in here
    ]
    if json:
        print_json(documents)
        return
    rows = table("", "name", "state", "where")
    for document in documents:
        state = "can be pulled" if document["state"] == "pull" else document["state"]
        rows.add_row(document["name"], state, document["path"])
    console().print(rows)


def show(model: NameArgument, json: JsonOption = False) -> None:
    """Shape, labels, training facts and profiles of a model. Its weights are checked."""
    from deltakwt.core.macs import dense_macs
    from deltakwt.weights.folder import config_document, load_weights
    from deltakwt.weights.profiles import load_profiles
    from deltakwt.weights.registry import file_profiles, resolve

    path = resolve(model)
    weights = load_weights(path)
    profiles = load_profiles(path) if path.is_dir() else file_profiles(path)
    document: dict[str, Any] = {
        "name": model,
        "path": str(path),
        "parameters": sum(math.prod(shape) for shape in weights.config.shapes().values()),
        "macs": int(dense_macs(weights.config).sum()),
        **config_document(weights.config, weights.training),
        "default_profile": profiles.default,
        "profiles": {name: profile.to_json() for name, profile in profiles.profiles.items()},
    }
    if json:
        print_json(document)
        return
    rows = table("", model, "")
    for key in ("path", "parameters", "macs", "dim", "heads", "mlp", "layers"):
        value = document[key]
        rows.add_row(key, f"{value:,}" if isinstance(value, int) else str(value))
    rows.add_row("labels", " ".join(weights.config.labels))
    for key, value in weights.training.items():
        long = isinstance(value, list | dict)
        rows.add_row(f"training: {key}", "told by --json" if long else str(value))
    for name, profile in profiles.profiles.items():
        mark = " (default)" if name == profiles.default else ""
        rows.add_row(f"profile {name}{mark}", _told(profile))
    console().print(rows)


def _told(profile: Profile) -> str:
    """What a profile does, short: thresholds of every layer are for --json."""
    thresholds = str(profile.setting.thresholds)
    parts = ["thresholds for each layer" if "," in thresholds else thresholds]
    parts.append(f"front end {profile.setting.front_end}")
    for key, what in (("accuracy", "right"), ("macs_percent", "of the MACs")):
        if isinstance(value := profile.measured.get(key), float):
            parts.append(f"{value:.2f}% {what}")
    return ", ".join(parts)


def pull(
    name: Annotated[str, typer.Argument(help="arm-kwt-1, arm-kwt-2 or arm-kwt-3.")],
    json: JsonOption = False,
) -> None:
    """Download one of the KWT authors' models (Apache-2.0), verified, into the cache."""
    from deltakwt.weights import registry

    with progress(name, "bytes") as bar:
        folder = registry.pull(name, bar.update)
    if json:
        print_json({"name": name, "path": str(folder)})
    else:
        print(f"{name}: ready in {folder}")


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An authors' .tflite file.")],
    out: Annotated[Path, typer.Option("--out", help="The model folder to make.")],
    json: JsonOption = False,
) -> None:
    """Turn a KWT authors' .tflite file into a model folder."""
    from deltakwt.weights.registry import import_tflite

    weights = import_tflite(file, out)
    parameters = sum(tensor.size for tensor in weights.tensors.values())
    if json:
        print_json({"path": str(out), "dim": weights.config.dim, "parameters": parameters})
    else:
        print(f"{out}: {parameters:,} parameters, {weights.config.dim} wide")
