"""The command line: the group `vendi-guidance` and its commands."""

import sys
from importlib import import_module
from typing import Any

try:
    import click
except ImportError:
    advice = "pip install vendi-guidance, without --no-deps"
    raise ImportError(f"the command line needs click: {advice}") from None

from vendi_guidance.runs.signals import end_with_launcher

COMMANDS = {
    "generate": "Generate diverse images for a prompt, or for a file of prompts.",
    "evaluate": "Score one folder of images, or compare two, and write a report.",
    "benchmark": "Write the prompts and attributes of a benchmark.",
    "select": "Copy the most diverse images of a folder into a new one.",
    "app": "Generate in the browser, with and without guidance side by side.",
    "tune": "Generate the same prompts along the dial, and show them on a page.",
}


class _LazyGroup(click.Group):
    """A group that imports a command only when it runs, which keeps `--help` fast."""

    def invoke(self, context: click.Context) -> Any:
        end_with_launcher()  # before the imports, which take seconds
        if hasattr(sys.stdout, "reconfigure"):  # stderr never fails on a letter it cannot encode
            sys.stdout.reconfigure(errors="replace")
        return super().invoke(context)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        module = f"vendi_guidance.commands.{name}"
        return import_module(module).main if name in COMMANDS else None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, commands={name: click.Command(name) for name in COMMANDS})
@click.version_option(package_name="vendi-guidance")
def main() -> None:
    """Generate diverse images for a prompt, and measure how diverse a set of images is.

    \b
      vendi-guidance generate "a person waving" --model MODEL --images-per-prompt 16 --output waving
      vendi-guidance evaluate waving --output report

    MODEL is a folder written by diffusers' save_pretrained, or the name of a model on the Hugging
    Face Hub. `vendi-guidance COMMAND --help` lists the common options of a command, and
    `--help-all` lists every option.
    """
