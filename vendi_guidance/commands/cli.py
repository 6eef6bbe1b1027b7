"""The classes of commands and options that all commands share."""

import os
from collections.abc import Collection
from inspect import cleandoc
from typing import Any

import click

from vendi_guidance.storage.messages import nearest


def tell(remark: str) -> None:
    """Print a remark to stderr; stdout is reserved for results."""
    click.echo(remark, err=True)


NONE = object()  # marks an option that was set to None by its keyword, such as "automatic"


class Range(click.FloatRange):
    """A range of floats that rejects NaN."""

    def convert(self, value: Any, parameter: Any, context: click.Context | None) -> Any:
        number = super().convert(value, parameter, context)
        if number != number:
            self.fail(f"{value} is not a number.", parameter, context)
        return number


class Choice(click.Choice[str]):
    """A choice that suggests the nearest known word."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return super().get_invalid_choice_message(value, ctx) + nearest(value, self.choices)


class Option(click.Option):
    """An option in the group of this title; `none` is a keyword whose value is `NONE`."""

    def __init__(self, *args: Any, group: str, none: str | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group, self.none = group, none
        if none is not None:
            choices = getattr(self.type, "choices", ["NUMBER"])
            self.metavar = f"[{'|'.join([*choices, none])}]"

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        if getattr(ctx.command, "is_short", False):
            extra.pop("range", None)
        return extra

    def make_metavar(self, ctx: click.Context) -> str:
        return super().make_metavar(ctx).removesuffix(" RANGE")  # the help text states the range

    def type_cast_value(self, context: click.Context, value: Any) -> Any:
        if self.none is not None and value == self.none:
            return NONE
        return super().type_cast_value(context, value)


DEBUG = "VENDI_GUIDANCE_DEBUG"  # environment variable; if it is set, errors show their traceback


class Command(click.Command):
    """A command that reports user errors in one sentence, with exit status 2. If `common` are
    given, `--help` lists the options with these parameter names only, and stops the description
    after its first block of examples; `--help-all` shows everything."""

    def __init__(self, *args: Any, common: Collection[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.context_settings = {"show_default": True}
        self.common = frozenset(common)
        self._help_all = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=self._show_all,
            help="Show all options and examples and exit.",
        )
        self.is_short = bool(common)

    def _show_all(self, context: click.Context, _: click.Parameter, is_given: bool) -> None:
        if is_given and not context.resilient_parsing:
            self.is_short = False
            click.echo(context.get_help(), color=context.color)
            self.is_short = True
            context.exit()

    def get_params(self, context: click.Context) -> list[click.Parameter]:
        parameters = super().get_params(context)
        return [*parameters, self._help_all] if self.common else parameters

    def format_help_text(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.is_short:
            return super().format_help_text(context, formatter)
        start, _, rest = cleandoc(self.help or "").partition("\b\n")
        examples, _, _ = rest.partition("\n\n")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"{start}\b\n{examples}")

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
            group = getattr(parameter, "group", "Options")
            is_shown = not self.is_short or group == "Options" or parameter.name in self.common
            if record is not None and not isinstance(parameter, click.Argument) and is_shown:
                groups.setdefault(group, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)
