"""Draw what was tried on the tuning prompts of photographs, for docs/theory.md.

`python -m scripts.comparison.search` reads photos-search.jsonl: a line for each setting, with the
scores on one H200 by a script that is not kept. In `arm`, k is the length of moves as a share of
what CFG adds, e of the distance between samples; `rounds` are made at the first step, `student` is
the distilled LoRA, and `ok` is fidelity.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from vendi_guidance.storage.files import whole_file

DATA = Path(__file__).with_name("photos-search.jsonl")
FIGURE = Path(__file__).parents[2] / "docs/figures/photos-search.png"
MARKERS = {"no moves": "s", "length": "o", "other variants": ".", "rounds": "^", "distilled": "x"}


def kind_of(arm: Mapping[str, Any]) -> str:
    """What is varied: a key of `MARKERS`."""
    if arm.keys() & {"student", "rounds"}:
        return "distilled" if "student" in arm else "rounds"
    if "k" not in arm:
        return "no moves"
    return "length" if arm.keys() == {"k"} else "other variants"


def main() -> None:
    lines = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
    [chosen] = [line for line in lines if line["arm"] == {"k": 0.15}]
    figure = Figure(figsize=(9, 3.6), dpi=100, layout="constrained")
    for axes, (x, y) in zip(
        figure.subplots(1, 2), (("looks", "kept"), ("vendi", "FD")), strict=True
    ):
        for kind, marker in MARKERS.items():
            own = [line for line in lines if kind_of(line["arm"]) == kind]
            axes.scatter([it[x] for it in own], [it[y] for it in own], marker=marker, label=kind)
        axes.scatter(chosen[x], chosen[y], 160, "none", edgecolors="black", label="chosen")
        axes.set(xlabel=x, ylabel=y)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False)
    with whole_file(FIGURE) as temporary:
        figure.savefig(temporary, format="png")


if __name__ == "__main__":
    main()
