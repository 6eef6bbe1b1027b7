"""Draws the pictures of docs/comfyui.md and docs/modular.md.

    python -m scripts.comfyui.pictures

One is the example workflow as ComfyUI shows it, the other the blocks of a guided loop.
"""

import json
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, PathPatch
from matplotlib.path import Path as Curve

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / "integrations" / "comfyui" / "example_workflows" / "diverse_batch.json"
FIGURES = ROOT / "docs" / "figures"
COLOURS = {
    "MODEL": "#b39ddb",
    "CLIP": "#ffd500",
    "VAE": "#ff6e6e",
    "CONDITIONING": "#ffa931",
    "LATENT": "#ff9cf9",
    "IMAGE": "#64b5f6",
}
TITLES = {
    "VendiGuidanceDiverseBatch": "Diverse Batch",
    "VendiGuidanceDiversityScore": "Diversity Score",
    "CheckpointLoaderSimple": "Load Checkpoint",
    "EmptyLatentImage": "Empty Latent Image",
    "VAEDecode": "VAE Decode",
    "SaveImage": "Save Image",
    "PreviewImage": "Preview Image",
}
SETTINGS = {
    "CheckpointLoaderSimple": ["checkpoint"],
    "CLIPTextEncode": ["text"],
    "EmptyLatentImage": ["width", "height", "batch size"],
    "VendiGuidanceDiverseBatch": ["diversity", "objective", "memory", "memory name"],
    "KSampler": ["seed", "", "steps", "cfg", "sampler", "scheduler", "denoise"],
}
LINE = 22
"""The height of a line of a node."""

Point = tuple[float, float]


def main() -> None:
    matplotlib.rcParams.update({"font.family": "DejaVu Sans", "svg.hashsalt": "0"})
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name, figure in (("comfyui-workflow", workflow()), ("modular-loop", loop())):
        figure.savefig(FIGURES / f"{name}.png", dpi=100, metadata={"Software": None})


def workflow() -> Figure:
    """The example workflow."""
    drawn = json.loads(WORKFLOW.read_text())
    axes = canvas(19.2, 7.1, background="#1e1e1e")
    sockets: dict[tuple[int, str, int], Point] = {}
    for node in drawn["nodes"]:
        sockets |= draw_node(axes, node)
    for _, start, output, end, entry, kind in drawn["links"]:
        a, b = sockets[start, "out", output], sockets[end, "in", entry]
        bend = max(40.0, abs(b[0] - a[0]) / 2)
        points = [a, (a[0] + bend, a[1]), (b[0] - bend, b[1]), b]
        codes = [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4]
        path = PathPatch(Curve(points, codes), fc="none", ec=COLOURS[kind], lw=1.8, zorder=1)
        axes.add_patch(path)
    return axes.figure  # type: ignore[return-value]


def draw_node(axes: Axes, node: dict[str, Any]) -> dict[tuple[int, str, int], Point]:
    """Draws a node; returns where its sockets are."""
    (x, y), (width, _) = node["pos"], node["size"]
    rows = max(len(node["inputs"]), len(node["outputs"]))
    names = SETTINGS.get(node["type"], [])
    settings = [
        f"{name}: {value}"
        for name, value in zip(names, node["widgets_values"], strict=False)
        if name
    ]
    height = LINE * (rows + len(settings) + 1) + 14
    ours = node["type"].startswith("VendiGuidance")
    box(axes, x, y, width, height, "#2f4a3a" if ours else "#353535")
    title = node.get("title") or TITLES.get(node["type"], node["type"])
    text: dict[str, Any] = {"va": "center", "zorder": 3}
    axes.text(x + 12, y + 14, title, color="white", size=9.5, weight="bold", **text)
    places = {}
    for side, sockets in (("in", node["inputs"]), ("out", node["outputs"])):
        at, toward = (x, 10) if side == "in" else (x + width, -10)
        for row, socket in enumerate(sockets):
            line = y + LINE * (row + 1.6)
            places[node["id"], side, row] = (at, line)
            colour = COLOURS.get(socket["type"], "#aaaaaa")
            axes.plot([at], [line], "o", color=colour, ms=6, zorder=4)
            align = "left" if side == "in" else "right"
            axes.text(
                at + toward, line, socket["name"].lower(), color="#cccccc", size=8, ha=align, **text
            )
    for row, setting in enumerate(settings):
        line = y + LINE * (rows + row + 1.6)
        axes.text(x + 14, line, setting, color="#e8e8e8", size=8, **text)
    return places


def loop() -> Figure:
    """The blocks of a guided denoising loop."""
    axes = canvas(9.8, 2.2, background="white")
    names = ["diversity_begin", "before_denoiser", "denoiser", "after_denoiser", "diversity"]
    told = ["watches", "prepares inputs", "evaluates the network", "steps the scheduler", "guides"]
    for i, (name, tells) in enumerate(zip(names, told, strict=True)):
        ours = name.startswith("diversity")
        x, y, width = 190 * i, 30.0, 160
        box(axes, x, y, width, 62, "#cfe8d8" if ours else "#eeeeee")
        centred: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 3}
        axes.text(x + width / 2, y + 22, name, size=9.5, family="DejaVu Sans Mono", **centred)
        axes.text(x + width / 2, y + 44, tells, size=8, color="#444444", **centred)
        if i:
            arrow(axes, (x - 30, y + 31), (x, y + 31))
    arrow(axes, (840, 92), (80, 92), "arc3,rad=-0.12")
    axes.text(460, 164, "the next timestep", size=8.5, ha="center", color="#444444")
    axes.text(0, 5, "the denoising loop", size=10, weight="bold")
    return axes.figure  # type: ignore[return-value]


def canvas(width: float, height: float, background: str) -> Axes:
    """Axes in hundredths of an inch, y downwards, without anything drawn."""
    figure = Figure(figsize=(width, height), facecolor=background)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-30, 100 * width - 30), ylim=(100 * height - 30, -30), facecolor=background)
    axes.axis("off")
    return axes


def box(axes: Axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    style = "round,pad=0,rounding_size=8"
    axes.add_patch(
        FancyBboxPatch((x, y), width, height, style, fc=colour, ec="#777777", lw=0.8, zorder=2)
    )


def arrow(axes: Axes, start: Point, end: Point, bend: str = "arc3") -> None:
    style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 11, "color": "#555555"}
    axes.add_patch(FancyArrowPatch(start, end, connectionstyle=bend, shrinkA=0, shrinkB=0, **style))


if __name__ == "__main__":
    main()
