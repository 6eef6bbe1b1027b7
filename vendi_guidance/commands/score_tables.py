"""The scores of one or two runs as tables: for the terminal, CSV, Markdown and LaTeX."""

import csv
import re
from collections.abc import Iterator, Mapping
from io import StringIO

from rich import box
from rich.table import Table
from rich.text import Text

from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.evaluation.results import TIMES, Comparison, ScoreResult

FORMATS = ("table", "csv", "markdown", "latex")
NOTHING = ("–", "")  # in place of a score and its interval

Runs = Mapping[str, Mapping[str, ScoreResult]]
"""The scores of each run, by its name."""


def score_cells(
    runs: Runs, comparison: Comparison | None
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The title of each score, and the texts and intervals of its runs and their comparison."""
    for name, measure in MEASURES.items():
        scores = [run.get(name) for run in runs.values()]
        if not any(scores):
            continue
        cells = [
            (measure.format(s.value), measure.format_interval(s.low, s.high)) if s else NOTHING
            for s in scores
        ]
        if comparison is not None:
            found = comparison.differences.get(name)
            if found is None:
                cells += [NOTHING] * 2
            else:
                cells.append((found.format_change(measure), found.format_interval(measure)))
                cells.append((found.significance(measure), ""))
        yield measure.title, cells


def score_table(runs: Runs, comparison: Comparison | None = None) -> Table:
    """The scores as a table for the terminal; two runs fit into 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column("score", width=None if comparison is None else 18)
    for name in runs:
        table.add_column(Text(name), justify="right")
    if comparison is not None:
        table.add_column("change", justify="right")
        table.add_column("significant?", no_wrap=True)
    for title, cells in score_cells(runs, comparison):
        texts = (Text(text).append(f"\n{ends}" if ends else "", "dim") for text, ends in cells)
        table.add_row(Text(title), *texts)
    return table


def formatted(form: str, runs: Runs, comparison: Comparison | None) -> str:
    """The scores as CSV with plain numbers, or as a table for Markdown or LaTeX (booktabs)."""
    if form == "csv":
        file = StringIO(newline="")
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["score", "run", "value", "low", "high"])
        for run, scores in runs.items():
            for name, one in scores.items():
                out.writerow([name, run, one.value, one.low, one.high])
        for name, it in (comparison.differences if comparison else {}).items():
            out.writerow([name, "change", it.change, it.low, it.high])
        return file.getvalue()
    head = ["score", *runs]
    head += [] if comparison is None else ["change", "significant?"]
    table = [
        [title, *(f"{text} ({ends})" if ends else text for text, ends in cells)]
        for title, cells in score_cells(runs, comparison)
    ]
    if form == "markdown":
        rows = [head, ["---"] * len(head), *table]
        lines = (" | ".join(cell.replace("|", "&#124;") for cell in row) for row in rows)
        return "".join(f"| {line} |\n" for line in lines)
    first, *others = (f"{' & '.join(map(latex, row))} \\\\\n" for row in [head, *table])
    start = f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}\n\\toprule\n{first}\\midrule\n"
    return f"{start}{''.join(others)}\\bottomrule\n\\end{{tabular}}\n"


def latex(text: str) -> str:
    """A text with what is special in LaTeX escaped, or left out."""
    plain = re.sub(r"([&%$#_{}])", r"\\\1", re.sub(r"[\\~^]", " ", text))
    return plain.replace(TIMES, r"$\times$").replace("−", "$-$").replace("–", "--")
