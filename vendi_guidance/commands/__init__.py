"""The command line."""

from importlib import import_module

import click

COMMANDS = {
    "evaluate": "Score finished batches, with a report.",
    "generate": "Generate images that differ from one another.",
    "score": "Vendi and RKE of very many images, in one resumable pass.",
}


class _Lazy(click.Group):
    """A group whose commands are imported when they are called: `--help` stays fast."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return import_module(f"vendi_guidance.commands.{name}").main

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy)
@click.version_option(package_name="vendi-guidance")
def main() -> None:
    """Diverse images for the prompts asked, and scores that say how diverse a batch is."""
