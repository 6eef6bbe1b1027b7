"""What the commands have in common."""

import os
from pathlib import Path
from typing import Any

import click

PACKAGE = Path(__file__).resolve().parents[1]
REPOSITORY = PACKAGE.parent


def asset(name: str) -> Any:
    """Path of a file or folder under assets/, seen from the current folder; None where there is
    none: what is installed has the demo model and its probe only."""
    for home in (REPOSITORY, PACKAGE):
        if (path := home / "assets" / name).exists():
            return Path(os.path.relpath(path))
    return None


NONE = object()
"""The value of an option that is given as its word for None."""


class Range(click.FloatRange):
    """A range of numbers, in which NaN does not lie."""

    def convert(self, value: Any, parameter: Any, context: click.Context | None) -> Any:
        number = super().convert(value, parameter, context)
        if number != number:
            self.fail(f"{value} is not a number.", parameter, context)
        return number


class Option(click.Option):
    """An option that `--help` lists under the title of its group.

    Args:
        none: a word whose value is `NONE`.
    """

    def __init__(self, *args: Any, group: str, none: str | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group, self.none = group, none
        if none is not None and self.metavar is None:
            choices = getattr(self.type, "choices", ["NUMBER"])
            self.metavar = f"[{'|'.join([*choices, none])}]"

    def type_cast_value(self, context: click.Context, value: Any) -> Any:
        is_none = self.none is not None and value == self.none
        return NONE if is_none else super().type_cast_value(context, value)


DEBUG = "VENDI_GUIDANCE_DEBUG"
"""Environment variable: if it is set, errors come with their traceback."""


class Command(click.Command):
    """A command that reports errors of the user in one sentence, with exit status 2."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (ValueError, OSError, ImportError) as error:
            if os.environ.get(DEBUG):
                raise
            raise click.UsageError(" ".join(str(error).split()), context) from error

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None and not isinstance(parameter, click.Argument):
                group = getattr(parameter, "group", "Options")
                groups.setdefault(group, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)
