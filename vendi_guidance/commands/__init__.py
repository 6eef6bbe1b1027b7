"""The command line."""

from importlib import import_module
from typing import Any

try:
    import click
except ImportError:
    advice = "pip install vendi-guidance, without --no-deps"
    raise ImportError(f"the command line needs click: {advice}") from None

from vendi_guidance.runs.launcher import end_with_launcher

COMMANDS = {
    "generate": "Generate images that differ from one another, into a folder.",
    "evaluate": "Score one folder of images, or compare two, and write a report.",
    "app": "Generate in the browser, without guidance and with it, side by side.",
    "tune": "Find the strength of guidance that suits a model and prompts.",
    "compare": "Compare ways to get different images, on a model and prompts.",
}


class _Lazy(click.Group):
    """A group that imports a command when it is called, so that `--help` stays fast."""

    def invoke(self, context: click.Context) -> Any:
        end_with_launcher()  # before imports that take seconds
        return super().invoke(context)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        module = f"vendi_guidance.commands.{name}"
        return import_module(module).main if name in COMMANDS else None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, commands={name: click.Command(name) for name in COMMANDS})
@click.version_option(package_name="vendi-guidance")
def main() -> None:
    """Generate diverse images for a prompt, and measure how diverse a set of images is.

    \b
      vendi-guidance generate "a person waving" --model MODEL --images-per-prompt 16 --output waving
      vendi-guidance evaluate waving --output report

    MODEL is a folder that diffusers' save_pretrained wrote, or a name on the Hugging Face hub.
    `vendi-guidance COMMAND --help` lists the options of a command; where these are many,
    `--help-all` lists the rest.
    """
