"""Draw what was tried on tuning prompts, for docs/theory.md.

`python -m scripts.comparison.search` reads choices.jsonl and photos-search.jsonl, of photographs on
one H200 by a script that is not kept: in `arm`, k is the length of moves as a share of what CFG
adds, e of the distance between samples, and `rounds` are made at the first step.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from scripts.comparison.models import LOG
from vendi_guidance.storage.files import whole_file

FILES = LOG.with_name("photos-search.jsonl"), LOG
FIGURE = Path(__file__).parents[2] / "docs/figures/searches.png"
MARKERS = {"no moves": "s", "length": "o", "other variants": ".", "rounds": "^"}
MARKERS |= {"distilled": "x", "other methods": "+"}
LENGTHS = {"OF_CFG", "OF_CFG_KNOWN", "KNOWN", "OF_SPREAD", "SHARE", "LONGEST"}
TRIALS = {
    "portraits": ("demo-faces", None),
    "portraits without CFG": ("demo-faces", 1.0),
    "student of emoji": ("demo-sdxl-turbo-lora", None),
    "student of photographs": ("demo-photos-turbo-lora", None),
}
"""Title -> model, and CFG scale if it is not the model's own."""


def kind_of(line: Mapping[str, Any]) -> str:
    """What a line of choices.jsonl varies, a key of `MARKERS`; with CFG rounds save evaluations."""
    if line["method"] != "default":
        return "other methods"
    saved = line["unguided"]["evaluations"] - line["scores"]["evaluations"]
    if line["settings"].get("proposal") == "gradient" or saved > 0:
        return "rounds"
    names = {it.rpartition(":")[2] for it in line["constants"]}
    return "length" if names <= LENGTHS else "other variants"


def main() -> None:
    searched, lines = ([*map(json.loads, it.read_text("utf-8").splitlines())] for it in FILES)
    shown = [(line["kind"], line) for line in searched]
    [photos] = [line for line in searched if line["arm"] == {"k": 0.15}]
    pairs = ("looks", "named kept"), ("Vendi", "FD")
    panels = [("photographs", shown, photos, *pair) for pair in pairs]
    for title, asked in TRIALS.items():
        own = [it for it in lines if (it["model"], it.get("guidance_scale")) == asked]
        points = [(kind_of(it), it["scores"]) for it in own if it["scores"]["named kept"] > 0.5]
        points += [("no moves", it["unguided"]) for it in own]
        [*_, chosen] = [it["scores"] for it in own if it["method"] == "default"]  # the last
        panels.append((title, points, chosen, *pairs[0]))
    figure = Figure(figsize=(12, 7), dpi=100, layout="constrained")
    for axes, (title, points, chosen, x, y) in zip(figure.subplots(2, 3).flat, panels, strict=True):
        for kind, marker in MARKERS.items():
            own = [it for its, it in points if its == kind]
            axes.scatter([it[x] for it in own], [it[y] for it in own], marker=marker, label=kind)
        axes.scatter(chosen[x], chosen[y], 160, "none", edgecolors="black", label="chosen")
        axes.set(title=title, xlabel=x, ylabel=y)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False)
    with whole_file(FIGURE) as temporary:
        figure.savefig(temporary, format="png")


if __name__ == "__main__":
    main()
