"""A finished figure: its texts, its data, and its image as SVG or PNG.

The same data gives the same bytes. The SVG is embedded in an HTML page: it has no fixed size,
script, style sheet or external address, and its ids are unique in the page. Text in it stays
text, so that names in any script are shown with the reader's fonts.
"""

import io
import json
import pickle
import re
import textwrap
import warnings
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

from assay.core.files import atomic_write
from assay.report.document import ReportTable

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

_FONTS: Final = "'DejaVu Sans', Verdana, sans-serif"
_NUMBER: Final = re.compile(r"-?\d*\.\d+(?:e[-+]?\d+)?")
_LINK: Final = re.compile(r"(?:(?<=url\(#)|(?<=^#))[\w.-]+")
_FAMILY: Final = re.compile(r"font-family:[^;]*;?\s*")
_COORDINATES: Final = ("d", "x", "y", "points")
_TARGET: Final = "target:"
_NOTE_LETTERS: Final = 76
_TITLE_LETTERS: Final = 52


@dataclass(frozen=True)
class Drawing:
    """A figure with its title, alt text and note."""

    title: str
    alt: str
    """Alt text: content and main numbers, generated from the data."""
    note: str
    """How to read it: the meaning of bars and bands, and n."""
    figure: "Figure"
    """The image without title and note, which a page shows as text."""
    table: ReportTable | None = None
    """The numbers that were drawn."""

    @cached_property
    def svg(self) -> str:
        """The image as one `svg` element with the alt text as its label."""
        return _clean_svg(self._drawn, self.alt)

    @property
    def linked_svg(self) -> str:
        """The same, with attributes `data-...` for what was marked by `link_to`."""
        return _clean_svg(self._drawn, self.alt, linked=True)

    @cached_property
    def _drawn(self) -> str:
        stream = io.StringIO()
        _save_figure(
            self._copy(), stream, format="svg", metadata={"Date": None, "Creator": None}
        )
        return stream.getvalue()

    def svg_file(self) -> str:
        """Return a standalone SVG file with the title above and the note below."""
        stream = io.StringIO()
        _save_figure(
            self._titled(), stream, format="svg", metadata={"Date": None, "Creator": None}
        )
        return _clean_svg(stream.getvalue(), self.alt)

    def png(self, dpi: int = 200) -> bytes:
        """Return a PNG image with the title above and the note below."""
        stream = io.BytesIO()
        _save_figure(self._titled(), stream, format="png", dpi=dpi, metadata={"Software": None})
        return stream.getvalue()

    def _titled(self) -> "Figure":
        figure = self._copy()
        title = "\n".join(textwrap.wrap(self.title, _TITLE_LETTERS))
        note = "\n".join(textwrap.wrap(self.note, _NOTE_LETTERS))
        figure.suptitle(title, fontsize=12, fontweight="bold", parse_math=False)
        figure.supxlabel(note, fontsize=9, color="#404040", parse_math=False)
        width, height = figure.get_size_inches()
        extra = 0.25 * (title.count("\n") + 1) + 0.17 * (note.count("\n") + 1)
        figure.set_size_inches(width, height + extra)
        return figure

    def _copy(self) -> "Figure":
        # Layout leaves traces in a figure that slightly change the next layout.
        figure: Figure = pickle.loads(pickle.dumps(self.figure))
        return figure


def link_to(artist: "Artist", **target: str) -> None:
    """Mark a part of a figure with what a page opens when it is clicked."""
    artist.set_gid(f"{_TARGET}{json.dumps(target)}")


def save_png(drawing: Drawing, path: Path, dpi: int = 200) -> None:
    """Write the image with its title and note as a PNG file.

    Raises:
        OutputError: The file cannot be written.
    """
    atomic_write(path, drawing.png(dpi))


def _save_figure(figure: "Figure", stream: IO[Any], **options: Any) -> None:
    from assay.report.figures.style import use_figure_style

    with use_figure_style(), warnings.catch_warnings():
        # A name may have characters that the font lacks: they become boxes in a PNG, and an SVG
        # uses the reader's fonts.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from")
        figure.savefig(stream, **options)


def _clean_svg(svg: str, label: str, *, linked: bool = False) -> str:
    """Return the SVG as an element for a page, as the module docstring describes."""
    root = ElementTree.fromstring(svg.encode())
    for element in root.iter():
        _clean_element(element)
        name = element.get("id", "")
        if linked and name.startswith(_TARGET):
            target = json.loads(name.removeprefix(_TARGET))
            element.attrib |= {f"data-{key}": value for key, value in target.items()}
    box = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib |= {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": box,
        "role": "img",
        "aria-label": label,
        "font-family": _FONTS,
        "stroke-linejoin": "round",
    }
    _number_ids(root, "")
    # A hash of the image makes the ids reproducible and unique.
    _number_ids(root, f"d{sha256(ElementTree.tostring(root)).hexdigest()[:10]}-")
    return ElementTree.tostring(root, encoding="unicode")


def _clean_element(element: ElementTree.Element) -> None:
    element.tag = element.tag.rpartition("}")[2]
    for child in list(element):
        if child.tag.rpartition("}")[2] in {"metadata", "style"}:
            element.remove(child)
        child.tail = None
    if element.tag not in {"text", "tspan"}:
        element.text = None
    attributes = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
    for name, value in attributes.items():
        if name == "style":
            attributes[name] = _FAMILY.sub("", value)
        elif name in _COORDINATES:
            numbers = " ".join(value.split())
            attributes[name] = _NUMBER.sub(lambda match: f"{float(match[0]):.2f}", numbers)
    element.attrib.clear()
    element.attrib |= attributes


def _number_ids(root: ElementTree.Element, prefix: str) -> None:
    """Number the ids that are linked to, and remove the others."""
    links = {
        name
        for element in root.iter()
        for value in element.attrib.values()
        for name in _LINK.findall(value)
    }
    linked = (name for element in root.iter() if (name := element.get("id")) in links)
    names = {name: f"{prefix}{place}" for place, name in enumerate(linked)}
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            if key == "id":
                del element.attrib[key]
                if value in names:
                    element.attrib[key] = names[value]
            elif key != "aria-label":
                element.attrib[key] = _LINK.sub(lambda link: names.get(link[0], link[0]), value)
