"""Draw what was tried on tuning prompts of photographs and portraits, for docs/theory.md.

`python -m scripts.comparison.search` reads choices.jsonl of portraits, and photos-search.jsonl: a
line for each setting, with the scores on one H200 by a script that is not kept. In `arm`, k is the
length of moves as a share of what CFG adds, e of the distance between samples, `rounds` are made at
the first step, `student` is the distilled LoRA; `ok` is fidelity.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from scripts.comparison.models import LOG
from vendi_guidance.storage.files import whole_file

DATA = Path(__file__).with_name("photos-search.jsonl")
FIGURE = Path(__file__).parents[2] / "docs/figures/searches.png"
LENGTHS = {f"vendi_guidance.guidance.inside:{it}" for it in ("OF_CFG", "OF_CFG_KNOWN", "LONGEST")}
MARKERS = {"no moves": "s", "length": "o", "other variants": ".", "rounds": "^"}
MARKERS |= {"distilled": "x", "other methods": "+"}


def kind_of(line: Mapping[str, Any]) -> str:
    """What is varied in a line of photographs, or of portraits, whose rounds save evaluations: a
    key of `MARKERS`."""
    if "arm" not in line:
        if line["method"] != "default":
            return "other methods"
        if line["scores"]["evaluations"] < line["unguided"]["evaluations"]:
            return "rounds"
        return "length" if line["constants"].keys() <= LENGTHS else "other variants"
    if (arm := line["arm"]).keys() & {"student", "rounds"}:
        return "distilled" if "student" in arm else "rounds"
    if "k" not in arm:
        return "no moves"
    return "length" if arm.keys() == {"k"} else "other variants"


def main() -> None:
    lines = [json.loads(it) for file in (DATA, LOG) for it in file.read_text("utf-8").splitlines()]
    shown = [(kind_of(line), line) for line in lines if "arm" in line]
    trials = [line for line in lines if line.get("model") == "demo-faces"]
    tried = [(kind_of(line), line["scores"]) for line in trials]
    tried += [("no moves", line["unguided"]) for line in trials]
    figure = Figure(figsize=(12, 3.6), dpi=100, layout="constrained")
    [photos] = [line for line in lines if line.get("arm") == {"k": 0.15}]
    [*_, portraits] = [it["scores"] for it in trials if it["method"] == "default"]  # the last
    panels = (
        ("photographs", shown, photos, "looks", "kept"),
        ("photographs", shown, photos, "vendi", "FD"),
        ("portraits", tried, portraits, "looks", "named kept"),
    )
    for axes, (title, points, chosen, x, y) in zip(figure.subplots(1, 3), panels, strict=True):
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
