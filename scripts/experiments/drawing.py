"""What the experiments' commands have in common: colours, options, and saving a figure."""

from pathlib import Path

import click
from matplotlib.figure import Figure

from vendi_guidance.storage.files import whole_file

# Okabe and Ito's colours, which the colour-blind tell apart too.
VERMILION, BLUE, GREEN, PURPLE, BLACK = "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#000000"

output_option = click.option(
    "--output", required=True, type=click.Path(path_type=Path), help="The figure, PNG."
)


def save(figure: Figure, output: Path, dpi: int = 120) -> None:
    """Write a figure as PNG, and say so."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(output) as file:
        figure.savefig(file, format="png", dpi=dpi)
    click.echo(f"wrote {output}")
