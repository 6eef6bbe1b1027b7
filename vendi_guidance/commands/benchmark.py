"""Write the prompts and attributes of a benchmark.

NAME is `faces` or `photos`, small benchmarks of the demo models that come with the package, or a
file: TOML or JSON of the same form, a table of GRADE's (grade_dataset.csv), or a concept's prompts
of COCO-DIMCIM's (dense_prompts/bus_dense_prompts.json).

\b
  vendi-guidance benchmark faces --output faces
  vendi-guidance generate faces/prompts.jsonl --model MODEL \\
      --images-per-prompt 8 --output faces/images
  vendi-guidance evaluate faces/images --attributes faces/attributes.json

Writes prompts.jsonl for `generate`, and attributes.json for `evaluate`, which then counts the
attributes that each prompt leaves open, and those that it names.
"""

import json
from pathlib import Path

import click

from vendi_guidance.commands.cli import Command
from vendi_guidance.commands.run_options import FOLDER, output_option
from vendi_guidance.evaluation.attributes import ATTRIBUTES, open_benchmark
from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.files import whole_folder
from vendi_guidance.storage.messages import counted
from vendi_guidance.storage.prompt_files import save_prompts

PROMPTS = "prompts.jsonl"


@click.command(cls=Command, help=__doc__)
@click.argument("name")
@output_option("--output", type=FOLDER, required=True, help="New folder for both files.")
def main(name: str, output: Path) -> None:
    if output.exists():
        raise FileExistsError(f"--output {output} exists: name a new folder")
    content = open_benchmark(name)
    prompts = [one["prompt"] for one in content["prompts"]]
    with whole_folder(output) as new:
        save_prompts(new / PROMPTS, prompts)
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        (new / ATTRIBUTES).write_text(text, encoding="utf-8")
    both = counted(len(prompts), "prompt"), counted(len(content["attributes"]), "attribute")
    images, attributes = output / "images", output / ATTRIBUTES
    each = f"--images-per-prompt {content['images_per_prompt']} --output {images}"
    model = asset(f"demo-{name}") or "MODEL"
    click.echo(f"{content['source']}: {' and '.join(both)} in {output}")
    click.echo(f"next: vendi-guidance generate {output / PROMPTS} --model {model} {each}")
    click.echo(f"then: vendi-guidance evaluate {images} --attributes {attributes}")
