"""Pictures of the notebooks: drawn in a kernel as SVG that never changes, made fit to stand in a page.

`prepare` runs in the kernel, before the notebook's first cell. `for_page` turns what matplotlib wrote
into SVG that takes the page's colours and fonts, in the light theme and in the dark one.
"""

import re
import xml.etree.ElementTree as ET
from typing import Any

ALT = "application/x-yaie-alt+json"  # what a picture shows, in words; it comes before the picture
SVG = "image/svg+xml"

_NAMESPACE = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
# Text on a coloured box is dark or light for good; all other ink and paper are the page's.
_ON_LIGHT, _ON_DARK = "#1a1a1a", "#fefefe"
_COLOURS = {
    "#000000": "currentColor",
    "#222222": "currentColor",
    "#ffffff": "var(--bg)",
    "#e8e8e8": "var(--y-grey-soft)",
    "black": "currentColor",
}
_NUMBER = re.compile(r"-?\d+\.\d{3,}")


def prepare() -> None:
    """Make this kernel draw SVG without dates, random ids or a background, and describe it."""
    import matplotlib
    from IPython.core.getipython import get_ipython
    from IPython.display import display
    from matplotlib_inline.config import InlineBackend

    from yaie.explore import draw

    backend = InlineBackend.instance(parent=get_ipython())
    backend.figure_formats = {"svg"}
    options: dict[str, Any] = {
        "bbox_inches": "tight",
        "facecolor": "none",
        "metadata": {"Date": None},
    }
    backend.print_figure_kwargs = options
    matplotlib.rcParams.update(
        {"svg.hashsalt": "yaie", "svg.fonttype": "none", "axes.facecolor": "none"}
    )
    show, ink_on = draw.show, draw.ink_on

    def show_with_words(fig: Any) -> None:
        display({ALT: describe(fig)}, raw=True)
        show(fig)

    def page_ink_on(colour: str) -> str:
        if colour in (draw.PALE, draw.PAPER, "none"):
            return draw.INK
        return _ON_LIGHT if ink_on(colour) == draw.INK else _ON_DARK

    draw.show, draw.ink_on = show_with_words, page_ink_on


def describe(fig: Any) -> str:
    """A matplotlib figure in words: its panels by their titles, what the axes mean, the legend."""
    panels = [ax for ax in fig.axes if ax.get_visible()]
    titles = [_plain(ax.get_title(loc)) for ax in panels for loc in ("left", "center", "right")]
    titles = [title for title in titles if title]
    across = dict.fromkeys(_plain(ax.get_xlabel()) for ax in panels if ax.get_xlabel())
    upwards = dict.fromkeys(_plain(ax.get_ylabel()) for ax in panels if ax.get_ylabel())
    legends = [legend for ax in panels if (legend := ax.get_legend()) is not None]
    texts = [text.get_text() for legend in legends for text in legend.get_texts()]
    names = dict.fromkeys(_plain(text) for text in texts)
    parts = [
        ("; ".join(titles), "{}"),
        (", ".join(across), "Across: {}"),
        (", ".join(upwards), "Upwards: {}"),
        (", ".join(names), "Drawn: {}"),
    ]
    return ". ".join(form.format(words) for words, form in parts if words)


def _plain(text: str) -> str:
    return " ".join(text.split())


def for_page(svg: str, name: str, alt: str) -> str:
    """The SVG to include in a page: alt as its label, `name` before its ids, lines but no blank ones."""
    root = ET.fromstring(svg)
    width = float(root.attrib["width"].removesuffix("pt")) * 4 / 3
    referred = set(re.findall(r'(?:url\(#|xlink:href="#)([^)"]+)', svg))
    ids = {key: f"{name}-{number}" for number, key in enumerate(sorted(referred, key=svg.index), 1)}
    for element in root.iter():
        element.tag = element.tag.removeprefix(_NAMESPACE)
    for element in root.iter():
        _clean(element, ids)
    _prune(root)
    view = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib |= {
        "viewBox": view,
        "role": "img",
        "aria-label": alt,
        "style": f"stroke-linejoin: round; stroke-linecap: butt; "
        f"min-width: {min(0.8 * width, 640):.0f}px; max-width: {1.15 * width:.0f}px",
    }
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode") + "\n"


def _prune(element: ET.Element) -> None:
    """Leave out what shows nothing, and groups that group nothing."""
    for child in list(element):
        _prune(child)
    kept: list[ET.Element] = []
    for child in element:
        if child.tag in ("metadata", "style") or (child.tag == "defs" and len(child) == 0):
            continue
        if child.tag == "path" and child.get("style") == "fill: none":
            continue
        kept += list(child) if child.tag == "g" and not child.attrib else [child]
    element[:] = kept


def _clean(element: ET.Element, ids: dict[str, str]) -> None:
    """Keep an id that is referred to, under its new name; round numbers; map colours and fonts."""
    if element.tag not in ("text", "tspan"):
        element.text = None if not (element.text or "").strip() else element.text
    element.tail = None if not (element.tail or "").strip() else element.tail
    for key, value in list(element.attrib.items()):
        if key == "id":
            if value in ids:
                element.attrib["id"] = ids[value]
            else:
                del element.attrib["id"]
            continue
        value = re.sub(r"url\(#([^)]+)\)", lambda found: f"url(#{ids[found[1]]})", value)
        if key == _HREF:
            del element.attrib[key]
            key = "href"
            value = f"#{ids[value[1:]]}" if value.startswith("#") else value
        if not value.startswith("data:"):
            value = _NUMBER.sub(lambda found: f"{float(found[0]):.2f}", value)
        if key in ("style", "fill", "stroke"):
            value = _restyle(value)
        element.attrib[key] = " ".join(value.split()) if key in ("d", "style") else value


def _restyle(style: str) -> str:
    """The page's colours and fonts in place of matplotlib's."""
    for colour, replacement in _COLOURS.items():
        style = re.sub(rf"{colour}(?![\w-])", replacement, style)

    declarations = [part.strip() for part in style.split(";") if part.strip()]
    kept = []
    for declaration in declarations:
        if declaration.startswith("font-family:"):
            if not declaration.endswith("monospace"):
                continue
            declaration = "font-family: var(--mono-font)"
        kept.append(declaration)
    return "; ".join(kept)
