"""Makes what is pushed to the Hugging Face hub, a folder for each repository, offline.

  python -m scripts.hub out/hub --owner NAME

These are the guided pipelines as custom pipelines, modular blocks, and the demo models and their
data with cards. `hf upload NAME/REPOSITORY out/hub/REPOSITORY` pushes one.
"""

import re
import shutil
from contextlib import chdir
from pathlib import Path
from string import Template

import click
from diffusers.commands.custom_blocks import CustomBlocksCommand

ROOT = Path(__file__).resolve().parents[1]

MODELS = {
    "sdxl": "stabilityai/stable-diffusion-xl-base-1.0",
    "flux": "black-forest-labs/FLUX.1-dev",
    "pixart_alpha": "PixArt-alpha/PixArt-XL-2-1024-MS",
    "pixart_sigma": "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS",
}
"""Guided pipelines, by the names of their files -> the model on the hub that each is for."""

RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\(\.\.[^)]*\)")


def write_card(source: Path, folder: Path, **about: str) -> None:
    """A repository's card, from a template in hub/."""
    given = {"repository": folder.name, **about}
    given["about"] = Template((ROOT / "hub" / "about.md").read_text("utf-8")).substitute(given)
    text = Template((source / "README.md").read_text("utf-8")).substitute(given)
    (folder / "README.md").write_text(text, "utf-8")


def write_pipeline(folder: Path, kind: str, owner: str) -> None:
    """A custom pipeline: the file of a guided pipeline, by the name that diffusers wants."""
    folder.mkdir(parents=True)
    code = (ROOT / "pipelines" / f"vendi_guided_{kind}.py").read_text("utf-8")
    (folder / "pipeline.py").write_text(code, "utf-8")
    [stock] = re.findall(r"^class \w+\(\w+, (\w+)\)", code, re.MULTILINE)
    card = {"owner": owner, "model": MODELS[kind], "stock": stock}
    write_card(ROOT / "hub" / "pipeline", folder, **card)


def write_blocks(folder: Path, owner: str) -> None:
    """Modular blocks, with the configuration that diffusers makes for them."""
    folder.mkdir(parents=True)
    shutil.copyfile(ROOT / "hub" / "modular" / "block.py", folder / "block.py")
    with chdir(folder):
        CustomBlocksCommand("block.py", "VendiGuidedSDXLBlocks").run()
    write_card(ROOT / "hub" / "modular", folder, owner=owner, model=MODELS["sdxl"])


def copy_demo(source: Path, folder: Path, owner: str) -> None:
    """A demo model or its data, whose card names it as the hub does."""
    shutil.copytree(source, folder)
    card = folder / "README.md"
    text = card.read_text("utf-8").replace('"assets/', f'"{owner}/')
    card.write_text(RELATIVE_LINK.sub(r"\1", text), "utf-8")


@click.command(help=__doc__)
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--owner", default="OWNER", help="User or organisation on the hub.")
def main(output: Path, owner: str) -> None:
    if output.exists():
        raise click.UsageError(f"{output} exists: delete it, or name another folder")
    for kind in MODELS:
        write_pipeline(output / f"vendi-guided-{kind.replace('_', '-')}", kind, owner)
    write_blocks(output / "vendi-guided-modular-sdxl", owner)
    for demo in sorted((ROOT / "assets").glob("demo-*")):
        copy_demo(demo, output / demo.name, owner)


if __name__ == "__main__":
    main()
