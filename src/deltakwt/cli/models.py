"""`deltakwt models`: list, show, measure, download, import and average models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.cli.common import console, load_model, note, print_json, progress, say, table
from deltakwt.cli.options import DataOption, JsonOption
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from rich.table import Table

    from deltakwt.core.setting import Profile
    from deltakwt.weights.mapping import Row

MAX_LABEL_FILE = 1 << 20  # bytes
NameArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="Use this model: a name, a folder, or a .tflite file."),
]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    models = typer.Typer(
        help="List, show, measure, download, import and average models.", no_args_is_help=True
    )
    models.command("list")(list_models)
    models.command("show")(show)
    models.command("width")(width)
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

    The weights are read and checked. Accuracy and MACs of a profile depend on the sound, so each is
    given with the mix of clips on which it was measured.
    """
    from deltakwt.core.macs import dense_macs
    from deltakwt.weights.folder import config_document, load_profiles, load_weights
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
        rows.add_row(f"training: {key}", "see --json" if long else str(value))
    for name, profile in profiles.profiles.items():
        mark = " (default)" if name == profiles.default else ""
        setting, *figures = _summary(profile)
        rows.add_row(f"profile {name}{mark}", setting)
        for figure in figures:
            rows.add_row("", figure)
    console().print(rows)


def _summary(profile: Profile) -> list[str]:
    """Return the setting of a profile and what was measured. --json has every threshold."""
    thresholds = str(profile.setting.thresholds)
    shown = "thresholds for each layer" if "," in thresholds else thresholds
    lines = [f"{shown}, front end {profile.setting.front_end}"]
    measured = profile.measured
    if isinstance(accuracy := measured.get("accuracy"), float):
        lines.append(f"accuracy {accuracy:.2f}% on {_mix(measured.get('mix'))}")
    if isinstance(share := measured.get("macs_percent"), float):
        lines.append(f"{share:.2f}% of the dense MACs on {_mix(measured.get('cost_mix'))}")
    return lines


def _mix(text: object) -> str:
    """Return "words=0.4167,noise=0.5" as "42% words, 50% noise"."""
    if not isinstance(text, str):
        return "an unknown mix of clips"
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        return ", ".join(f"{float(share):.0%} {group}" for group, _, share in pairs)
    except ValueError:
        return text


def width(
    model: NameArgument,
    data: DataOption,
    clips: Annotated[
        int,
        typer.Option(
            "--clips",
            metavar="N",
            min=1,
            help="Draw this many test clips; those of digital silence are not run.",
        ),
    ] = 60,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Use this seed for the choice of clips.")
    ] = 0,
    json: JsonOption = False,
) -> None:
    """Show how much of its width a model uses, layer by layer.

    A wide model that was copied from a narrow one has tokens in as few dimensions as the narrow
    one, and heads that attend alike. The table has the number of components that carry 99% of the
    variance of X, the input of a layer, and the correlation of the two heads most alike.
    """
    from deltakwt.data.speech_commands import draw, read
    from deltakwt.evaluate.width import measure_width

    loaded = load_model(model, "dense", arithmetic="float")
    manifest = draw(data, seed=seed, limit=clips, labels=loaded.labels)
    sounds = [read(manifest, clip) for clip in manifest.clips if clip.path is not None]
    with progress("clips") as bar:
        found = measure_width(loaded, sounds, bar.update)
    document = {"model": model, "data": data.name, "dim": loaded.config.dim, **found.to_json()}
    if json:
        print_json(document)
        return
    rows = table(
        f"{model}: width {loaded.config.dim}, {found.clips} clips of {data.name}",
        *("layer", "components of X for 99% of the variance", "correlation of the heads"),
    )
    for layer, components in found.components.items():
        alike = found.correlation.get(layer)
        rows.add_row(str(layer), str(components), "one head" if alike is None else f"{alike:.3f}")
    console().print(rows)
    if found.correlation:
        verdict = "are independent" if found.is_independent else "are copies of each other"
        say(f"{model}: by both figures its parts {verdict}")


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
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Write the model to this new folder.")
    ],
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="LABELS",
            help="Name the labels in the order of the logits: a,b,c or a text file with one per"
            " line. Default: the twelve labels of Speech Commands.",
        ),
    ] = None,
    heads: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Use this many attention heads. Default: one for each 64 features."
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Compare with the logits that the model's own code gives: a .pt or .safetensors"
            " file with features (n, frames, 40) and logits (n, labels).",
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
    from deltakwt.weights.importing import import_model
    from deltakwt.weights.mapping import DoesNotFit

    try:
        found = import_model(file, out, heads=heads, labels=_labels(labels), check=check)
    except DoesNotFit as problem:
        from rich.console import Console

        Console(stderr=True).print(_tensor_table(problem.rows))
        raise
    weights = found.weights
    parameters = sum(tensor.size for tensor in weights.tensors.values())
    if json:
        document = {"path": str(out), "dim": weights.config.dim, "parameters": parameters}
        if found.difference is not None:
            document["check_difference"] = found.difference
        print_json(document)
        return
    if table_:
        console().print(_tensor_table(found.rows))
    say(f"{out}: {parameters:,} parameters, width {weights.config.dim}")
    if found.difference is not None:
        say(f"{check or file}: logits agree, largest difference {found.difference:.2g}")
    for text in found.notes:
        note(f"assumed: {text}")


def _labels(text: str | None) -> tuple[str, ...] | None:
    """Return the labels of a text file, or of a list with commas."""
    from deltakwt.files import read_bytes
    from deltakwt.weights.folder import check_labels

    if text is None:
        return None
    if "," in text:
        parts = text.split(",")
    else:
        try:
            content = read_bytes(text, MAX_LABEL_FILE).decode()
        except UnicodeError:
            raise DeltakwtError(f"--labels {text}: is not UTF-8 text") from None
        parts = content.splitlines()
    return check_labels("--labels", [part.strip() for part in parts if part.strip()])


def _tensor_table(rows: list[Row]) -> Table:
    made = table("", "tensor in the file", "shape", "taken for")
    for row in rows:
        made.add_row(row.name, "x".join(map(str, row.shape)) or "1", row.role)
    return made


def average_models(
    parts: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL=SHARE", help="Average these models with these shares, such as 0.3."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Write the model to this new folder.")
    ],
    json: JsonOption = False,
) -> None:
    """Write the weighted mean of models of one shape.

    It is useful for models that were trained from the same weights.
    """
    from deltakwt.files import writing
    from deltakwt.weights.average import average, parse_shares
    from deltakwt.weights.folder import save_folder
    from deltakwt.weights.registry import resolve

    shares = parse_shares(parts)
    if out.exists():
        raise DeltakwtError(f"--out {out}: exists already; give a new folder")
    weights = average([(resolve(name), share) for name, share in shares])
    with writing(f"--out {out}"):
        save_folder(out, weights)
    if json:
        print_json({"path": str(out), "shares": dict(shares)})
    else:
        say(f"{out}: " + " + ".join(f"{share:g} {name}" for name, share in shares))
