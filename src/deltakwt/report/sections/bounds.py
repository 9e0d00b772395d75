"""What the shape of the model alone says: shares of the products, greatest possible savings."""

from __future__ import annotations

from deltakwt.core.config import KWT3
from deltakwt.core.macs import bounds
from deltakwt.report.run import Run
from deltakwt.report.section import Numbers, Page, Section
from deltakwt.report.style import PRODUCT_NAMES
from deltakwt.report.tables import Cell, Column, Table


def collect(run: Run) -> Numbers:
    shapes = {"model": run.model.config, "kwt-3": KWT3}
    found = {name: bounds(config) for name, config in shapes.items()}
    return {name: {**b, "million_macs": b["macs"] / 1e6} for name, b in found.items()}


def show(document: Numbers) -> Page:
    own, kwt3, theirs = document["bounds"]["model"], document["bounds"]["kwt-3"], document["paper"]
    text = (
        f"<p>Nothing here is measured: it follows from the shapes. A clip costs"
        f" {own['million_macs']:.1f} million MACs, {own['mhsa_share_percent']:.1f}% of them in"
        f" attention (KWT-3: {kwt3['million_macs']:.1f} million,"
        f" {kwt3['mhsa_share_percent']:.1f}%; the paper: {theirs['mhsa_share_percent']:.0f}%)."
        " Computing only what the class token needs in the last layer saves"
        f" {own['last_layer']['mhsa_saving_percent']:.2f}% of that layer's attention and"
        f" {own['all_layers']['mhsa_saving_percent']:.2f}% of all attention (KWT-3:"
        f" {kwt3['last_layer']['mhsa_saving_percent']:.2f}% and"
        f" {kwt3['all_layers']['mhsa_saving_percent']:.2f}%; the paper:"
        f" {theirs['shortcut']['last_layer_percent']:.2f}% and"
        f" {theirs['shortcut']['mhsa_percent']:.2f}%).</p>"
    )
    columns = [Column("product")]
    kinds = ("share of MHSA", "greatest saving", "in the last layer")
    columns += [
        Column(who, ".2f", f"{kind}, %")
        for kind in kinds
        for who in ("this model", "KWT-3", "paper")
    ]
    rows: list[list[Cell]] = []
    for product, title in PRODUCT_NAMES.items():
        printed = theirs["products"].get(product, {})
        row: list[Cell] = [title]
        for key, paper_key in (
            ("mhsa_share_percent", "share"),
            ("greatest_saving_percent", "saving"),
            ("greatest_saving_last_layer_percent", "last"),
        ):
            row += [
                own["products"][product][key],
                kwt3["products"][product][key],
                printed.get(paper_key),
            ]
        rows.append(row)
    caption = "Shares of the products and the greatest possible savings, every delta zero."
    table = Table("bounds", caption, columns, rows)
    return Page(
        "What the shape allows",
        theirs["counterparts"]["bounds"],
        text,
        tables=[table],
    )


SECTION = Section("bounds", collect, show)
