"""HTML that escapes by default: every page of the project is built from these functions.

Text becomes HTML in one place, `escape`. `element` escapes all children and attributes that are not
`Html` already, `prose` escapes a text before it adds its markup, and `document` escapes what it
puts into a page. So a file, label or profile name can contain anything.

A page carries a content security policy that names its own script and style by their SHA-256, so
that a browser runs nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from html import escape as escape_markup
from importlib.resources import files
from string import Template
from typing import Any

from numpy.typing import NDArray

from deltakwt.core.config import SAMPLE_RATE

UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
VOID = ("br", "img", "meta")


class Html(str):
    """A piece of HTML. Only the functions of this module and the SVG writer make it."""

    __slots__ = ()


def escape(value: object) -> Html:
    """Return `value` as HTML text. What is `Html` already stays as it is."""
    if isinstance(value, Html):
        return value
    text = UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(value))
    return Html(escape_markup(text, quote=True))


def join(*parts: object, between: str = "") -> Html:
    """Return the parts after each other, escaped where needed."""
    return Html(escape(between).join(escape(part) for part in parts))


def element(name: str, *children: object, **attributes: object) -> Html:
    """Return <name attributes>children</name>.

    `class_` and `data_sort` stand for `class` and `data-sort`. An attribute that is None or False
    is left out, and one that is True has no value.
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    written = "".join(
        f" {key}" if value is True else f' {key}="{escape(value)}"'
        for key, value in given.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def prose(text: str) -> Html:
    """Return paragraphs of text as HTML: a blank line separates, **bold** and `code` are marked."""
    paragraphs = []
    for paragraph in text.strip().split("\n\n"):
        marked = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(paragraph))
        marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", marked)
        paragraphs.append(element("p", Html(marked)))
    return join(*paragraphs, between="\n")


def document(template: str, *, title: str, style: str = "", **parts: object) -> str:
    """Return a whole page: a template of this package with the script, the style and the parts.

    `style` is CSS in addition to that of all pages.
    """
    css, script = asset("page.css") + style, asset("page.js")
    return Template(asset(template)).substitute(
        {name: escape(value) for name, value in parts.items()},
        title=escape(title),
        policy=escape(content_policy(script, css)),
        style=css,
        script=script,
    )


def content_policy(script: str, style: str) -> str:
    """Return the content security policy of a page with this script and this style.

    Nothing is fetched, and no other script or style sheet applies. The drawings use style
    attributes, which cannot run anything; they stay allowed.
    """
    return (
        f"default-src 'none'; script-src '{digest(script)}'; style-src-elem '{digest(style)}';"
        " style-src-attr 'unsafe-inline'; img-src data:; media-src data:; base-uri 'none';"
        " form-action 'none'"
    )


def digest(text: str) -> str:
    """Return the hash of an inline script or style as a content security policy writes it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def asset(name: str) -> str:
    """Return a text file of the folder `assets`."""
    return (files("deltakwt.report") / "assets" / name).read_text(encoding="utf-8")


def audio_address(sound: NDArray[Any]) -> str:
    """Return a sound as a data: address: MP3 where libsndfile can write it, else FLAC."""
    import soundfile

    is_mp3 = "MP3" in soundfile.available_formats()
    kind, mime = ("MP3", "audio/mpeg") if is_mp3 else ("FLAC", "audio/flac")
    file = io.BytesIO()
    soundfile.write(file, sound, SAMPLE_RATE, format=kind)
    return f"data:{mime};base64,{base64.b64encode(file.getvalue()).decode()}"
