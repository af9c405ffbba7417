"""A finished figure: its words, its data, and its picture as SVG or PNG.

The same data gives the same bytes. The SVG stands inside an HTML page: it has no size of its
own, no script, no style sheet, no address, and ids that no other drawing of the page has.
Text in it stays text, so that names in any script are shown by the fonts of the reader.
"""

import io
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
    from matplotlib.figure import Figure

_FONTS: Final = "'DejaVu Sans', Verdana, sans-serif"
_NUMBER: Final = re.compile(r"-?\d*\.\d+(?:e[-+]?\d+)?")
_LINK: Final = re.compile(r"(?:(?<=url\(#)|(?<=^#))[\w.-]+")
_FAMILY: Final = re.compile(r"font-family:[^;]*;?\s*")
_COORDINATES: Final = ("d", "x", "y", "points")
_NOTE_LETTERS: Final = 76
_TITLE_LETTERS: Final = 52


@dataclass(frozen=True)
class Drawing:
    """A figure with the words that a reader needs who does not see it."""

    title: str
    alt: str
    """What it shows, and its main numbers, made from the data."""
    note: str
    """How to read it: what the bars and bands are, and n."""
    figure: "Figure"
    """The picture without title and note; a page sets them as text beside it."""
    table: ReportTable | None = None
    """The numbers that were drawn."""

    @cached_property
    def svg(self) -> str:
        """The picture as one `svg` element, named for those who do not see it."""
        stream = io.StringIO()
        _render(self._copy(), stream, format="svg", metadata={"Date": None, "Creator": None})
        return _tidy(stream.getvalue(), self.alt)

    def svg_file(self) -> str:
        """The picture with its title above and its note below, as a file that stands alone."""
        stream = io.StringIO()
        _render(self._titled(), stream, format="svg", metadata={"Date": None, "Creator": None})
        return _tidy(stream.getvalue(), self.alt)

    def png(self, dpi: int = 200) -> bytes:
        """The picture with its title above and its note below."""
        stream = io.BytesIO()
        _render(self._titled(), stream, format="png", dpi=dpi, metadata={"Software": None})
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
        # Laying a figure out leaves traces in it that change the next layout a little.
        figure: Figure = pickle.loads(pickle.dumps(self.figure))
        return figure


def save_png(drawing: Drawing, path: Path, dpi: int = 200) -> None:
    """Write the picture with its title and note as a PNG file.

    Raises:
        OutputError: The file cannot be written.
    """
    atomic_write(path, drawing.png(dpi))


def _render(figure: "Figure", stream: IO[Any], **options: Any) -> None:
    from assay.report.figures.style import in_style

    with in_style(), warnings.catch_warnings():
        # A name may have letters that the font lacks: they become boxes in a PNG, and in an
        # SVG the reader's own fonts have them.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from")
        figure.savefig(stream, **options)


def _tidy(svg: str, label: str) -> str:
    """The drawing as an element for a page: see the head of the module."""
    root = ElementTree.fromstring(svg.encode())
    for element in root.iter():
        _tidy_element(element)
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
    _rename(root, "")
    # The ids are the same for the same picture, and no other picture has them.
    _rename(root, f"d{sha256(ElementTree.tostring(root)).hexdigest()[:10]}-")
    return ElementTree.tostring(root, encoding="unicode")


def _tidy_element(element: ElementTree.Element) -> None:
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


def _rename(root: ElementTree.Element, prefix: str) -> None:
    """Number the ids that are linked to, and drop the others."""
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
