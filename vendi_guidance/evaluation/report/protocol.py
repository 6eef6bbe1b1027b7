"""The table of a protocol, for the terminal and as Markdown."""

from rich import box
from rich.table import Table
from rich.text import Text

from vendi_guidance.evaluation.protocols import ProtocolTable
from vendi_guidance.evaluation.report.markdown import cell, row


def terminal_table(table: ProtocolTable) -> Table:
    """The table for the terminal."""
    found = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for place, heading in enumerate(table.headings):
        found.add_column(heading, justify="right" if place else "left")
    for name, *values in texts(table):
        found.add_row(Text(name), *values)
    return found


def as_protocol_markdown(table: ProtocolTable) -> str:
    """The table and what it depends on, as Markdown."""
    lines = [f"# {table.protocol}", "", row(table.headings)]
    lines.append("|---" + "|---:" * (len(table.headings) - 1) + "|")
    lines += [row(cells) for cells in texts(table)]
    for line in notes(table):
        lines += ["", cell(line)]
    return "\n".join([*lines, ""])


def texts(table: ProtocolTable) -> list[list[str]]:
    """The rows as text, "–" where a value is missing."""
    return [
        [name, *("–" if value is None else f"{value:.2f}".replace("-", "−") for value in values)]
        for name, values in table.rows
    ]


def notes(table: ProtocolTable) -> list[str]:
    """What the numbers depend on, a sentence each."""
    found = [f"After {table.source}.", f"Settings: {table.settings}."]
    if table.differs:
        found.append(f"Not comparable: {'; '.join(table.differs)}.")
    return found + table.remarks
