"""Figures and tables of a page."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from textwrap import fill, shorten

from matplotlib.figure import Figure
from PIL import Image

from vendi_guidance.storage.files import whole_file

IN_A_LINE = 8  # images
SIZE = 64  # of an image, in pixels


def save_grids(path: Path, strips: Sequence[tuple[str, Mapping[str, list[Image.Image]]]]) -> None:
    """Show images of some prompts, a row a method and a column a prompt.

    Args:
        strips: methods, with the images of the same prompts.
    """
    prompts = list(strips[0][1])
    lines = -(-len(strips[0][1][prompts[0]]) // IN_A_LINE)
    size = (2.0 + 4.2 * len(prompts), (0.55 * lines + 0.1) * len(strips) + 0.4)
    figure = Figure(figsize=size, dpi=130, layout="constrained")
    grid = figure.subplots(len(strips), len(prompts), squeeze=False)
    for line, (method, of_prompts) in zip(grid, strips, strict=True):
        for axes, prompt in zip(line, prompts, strict=True):
            images = of_prompts[prompt]
            axes.imshow(as_sheet(images), interpolation="lanczos")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
        name = fill(method, 16)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11)
    for axes, prompt in zip(grid[0], prompts, strict=True):
        axes.set_title(shorten(prompt, 60), fontsize=12)
    save_figure(path, figure)


def as_sheet(images: Sequence[Image.Image]) -> Image.Image:
    """Images of 64 x 64 pixels as one, `IN_A_LINE` in a row."""
    lines = -(-len(images) // IN_A_LINE)
    sheet = Image.new("RGB", (SIZE * min(len(images), IN_A_LINE), SIZE * lines), "white")
    for place, image in enumerate(images):
        sheet.paste(image, (place % IN_A_LINE * SIZE, place // IN_A_LINE * SIZE))
    return sheet


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure in 128 colours, which takes a third of the space."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png")
    few = Image.open(drawn).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    with whole_file(path) as temporary:
        few.save(temporary, format="PNG", optimize=True)


def number(value: float | None, form: str, interval: tuple[float, float] | None = None) -> str:
    """A value and its interval; "-" for None."""
    if value is None:
        return "-"
    ends = "" if interval is None else f" ({interval[0]:{form}} to {interval[1]:{form}})"
    return format(value, form) + ends


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """A table whose first `words` columns are words, and the others numbers."""
    rules = ["---"] * words + ["--:"] * (len(titles) - words)
    return "\n".join("| " + " | ".join(line) + " |" for line in [titles, rules, *rows])
