"""`deltakwt models`: list, show, download, import and average models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.cli.common import JsonOption, console, print_json, progress, say, table

if TYPE_CHECKING:
    from deltakwt.core.setting import Profile

NameArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="Use this model: a name, a folder, or a .tflite file."),
]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    models = typer.Typer(
        help="List, show, download, import and average models.", no_args_is_help=True
    )
    models.command("list")(list_models)
    models.command("show")(show)
    models.command("pull")(pull)
    models.command("import")(import_file)
    models.command("average")(average_models)
    app.add_typer(models, name="models")


def list_models(json: JsonOption = False) -> None:
    """List the models that can be used by name or downloaded."""
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
        state = "to be pulled" if document["state"] == "pull" else document["state"]
        rows.add_row(document["name"], state, document["path"])
    console().print(rows)


def show(model: NameArgument, json: JsonOption = False) -> None:
    """Show the shape, labels, training and profiles of a model.

    The weights are read and checked. The share of the MACs of a profile depends on the sound, so it
    is given with the mix of clips on which it was measured.
    """
    from deltakwt.core.macs import dense_macs
    from deltakwt.weights.folder import config_document, load_weights
    from deltakwt.weights.profiles import load_profiles
    from deltakwt.weights.registry import default_arithmetic, file_profiles, resolve

    path = resolve(model)
    weights = load_weights(path)
    profiles = load_profiles(path) if path.is_dir() else file_profiles(path)
    document: dict[str, Any] = {
        "name": model,
        "path": str(path),
        "parameters": sum(math.prod(shape) for shape in weights.config.shapes().values()),
        "macs": int(dense_macs(weights.config).sum()),
        **config_document(weights.config, weights.training),
        "arithmetic": default_arithmetic(path, weights),
        "default_profile": profiles.default,
        "profiles": {name: profile.to_json() for name, profile in profiles.profiles.items()},
    }
    if json:
        print_json(document)
        return
    rows = table("", model, "")
    for key in ("path", "parameters", "macs", "dim", "heads", "mlp", "layers", "arithmetic"):
        value = document[key]
        rows.add_row(key, f"{value:,}" if isinstance(value, int) else str(value))
    rows.add_row("labels", " ".join(weights.config.labels))
    for key, value in weights.training.items():
        long = isinstance(value, list | dict)
        rows.add_row(f"training: {key}", "shown by --json" if long else str(value))
    for name, profile in profiles.profiles.items():
        mark = " (default)" if name == profiles.default else ""
        rows.add_row(f"profile {name}{mark}", _summary(profile))
    console().print(rows)


def _summary(profile: Profile) -> str:
    """Return the setting of a profile and what was measured. --json has every threshold."""
    thresholds = str(profile.setting.thresholds)
    parts = ["thresholds for each layer" if "," in thresholds else thresholds]
    parts.append(f"front end {profile.setting.front_end}")
    measured = profile.measured
    if isinstance(accuracy := measured.get("accuracy"), float):
        parts.append(f"accuracy {accuracy:.2f}%")
    if isinstance(share := measured.get("macs_percent"), float):
        parts.append(f"{share:.2f}% of the MACs of {_mix(measured.get('cost_mix'))}")
    return ", ".join(parts)


def _mix(text: object) -> str:
    """Return "words=0.4167,noise=0.5" as "42% words, 50% noise"."""
    if not isinstance(text, str):
        return "an unknown mix of clips"
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        return ", ".join(f"{float(share):.0%} {group}" for group, _, share in pairs)
    except ValueError:
        return text


def pull(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Download this model: arm-kwt-1, arm-kwt-2 or arm-kwt-3."
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Download a model of the KWT authors (Apache-2.0)."""
    from deltakwt.weights import registry

    with progress(name, "bytes") as bar:
        folder = registry.pull(name, bar.update)
    if json:
        print_json({"name": name, "path": str(folder)})
    else:
        say(f"{name}: ready in {folder}")


def import_file(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Read this file: .tflite of the KWT authors, a PyTorch checkpoint (.pt, .pth,"
            " .ckpt, .bin), .safetensors, or .onnx.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Write the model to this new folder.")],
    labels: Annotated[
        str | None,
        typer.Option(
            help="Name the labels in the order of the logits: a,b,c or a text file with one per"
            " line. Default: the twelve labels of Speech Commands."
        ),
    ] = None,
    heads: Annotated[
        int | None,
        typer.Option(help="Use so many attention heads. Default: one for each 64 features."),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            help="Compare with the logits that the model's own code gives: a .pt or .safetensors"
            " file with features (n, 98, 40) and logits (n, labels)."
        ),
    ] = None,
    table_: Annotated[
        bool, typer.Option("--table", help="Show what every tensor of the file became.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write a model of another project as a model folder.

    Tensors are recognised by shape, by structure and by name. Nothing in a checkpoint is executed.
    If something does not fit, a table on stderr says what each tensor was taken for.
    """
    from deltakwt.cli.imported import import_and_show

    import_and_show(file, out, labels, heads, check, table_, json)


def average_models(
    parts: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL=SHARE...", help="Average these models with these shares, such as 0.3."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Write the model to this new folder.")],
    json: JsonOption = False,
) -> None:
    """Write the weighted mean of models that were trained from the same weights."""
    from deltakwt.core.errors import DeltakwtError
    from deltakwt.weights.average import average, parse_shares
    from deltakwt.weights.folder import save_folder
    from deltakwt.weights.registry import resolve

    shares = parse_shares(parts)
    if out.exists():
        raise DeltakwtError(f"--out {out}: exists already; give a new folder")
    weights = average([(resolve(name), share) for name, share in shares])
    try:
        save_folder(out, weights)
    except OSError as error:
        raise DeltakwtError(f"--out {out}: cannot be written: {error.strerror}") from error
    if json:
        print_json({"path": str(out), "shares": dict(shares)})
    else:
        say(f"{out}: " + " + ".join(f"{share:g} {name}" for name, share in shares))
