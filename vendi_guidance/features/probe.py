"""The demo's embedder and labeler, a small classifier. Its last hidden layer is the feature."""

from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from string import Formatter
from typing import TypeAlias

import numpy as np
import torch
from huggingface_hub import PyTorchModelHubMixin
from PIL import Image
from torch import Tensor, nn

from vendi_guidance.features.base import Labels
from vendi_guidance.features.network import digest_of
from vendi_guidance.features.weights import reason
from vendi_guidance.kernels.precision import float32_by_default, isolated

TRAINING_FEATURES = "training_features.safetensors"
"""In a probe's folder: its features of real images."""

Look: TypeAlias = tuple[str, ...]  # a concept, followed by a value of each attribute
PartialLook: TypeAlias = tuple[str | None, ...]
"""The part of a look that a prompt names; None for attributes it leaves open."""


class Probe(nn.Module, PyTorchModelHubMixin):
    """A convolutional classifier of small images, with heads for the concept and each attribute.

    `save_pretrained` and `from_pretrained` store it as safetensors and JSON.

    Args:
        concepts: names of the concepts.
        attributes: name and values of each attribute.
        caption: template of prompts, such as "{concept}, {tone} skin tone, {vendor} style" or "a
            photo of a {colour} {concept}". Prompts omit the attributes that they leave open.
        size: height and width of the input in pixels, a multiple of 16; images are resized to it.

    Example:
        >>> weight = ("weight", ["regular", "bold"])
        >>> probe = Probe(["letter a", "letter b"], [weight], "{concept}, {weight}")
        >>> probe.asked(["letter b, bold", "letter b", "a castle"])
        [('letter b', 'bold'), ('letter b', None), None]
    """

    name = "probe"

    def __init__(
        self,
        concepts: Sequence[str],
        attributes: Sequence[tuple[str, Sequence[str]]],  # huggingface_hub sorts a mapping's keys
        caption: str,
        size: int = 64,
    ) -> None:
        super().__init__()
        self.concepts = list(concepts)
        self.attributes = {name: list(values) for name, values in attributes}
        self.caption = caption
        self.size = size
        blocks: list[nn.Module] = []
        for width, wider in pairwise((3, 24, 48, 96, 128)):
            blocks += [
                nn.Conv2d(width, wider, 3, padding=1),
                nn.GroupNorm(8, wider),
                nn.SiLU(),
                nn.Conv2d(wider, wider, 3, stride=2, padding=1),
                nn.GroupNorm(8, wider),
                nn.SiLU(),
            ]
        self.body = nn.Sequential(
            *blocks,
            nn.Flatten(),
            nn.Linear(128 * (size // 16) ** 2, 128),
            nn.LayerNorm(128),
            nn.SiLU(),
        )
        self.heads = nn.ModuleList(nn.Linear(128, len(names)) for names in self._values.values())

    def forward(self, pixels: Tensor) -> list[Tensor]:
        """(n, classes) logits of each head, the concept's first, for (n, 3, size, size) pixels in
        [-1, 1]."""
        features = self.body(pixels)
        return [head(features) for head in self.heads]

    @isolated()
    def embed(self, images: Sequence[Image.Image]) -> Tensor:
        """(n, 128) float32 features of n images."""
        pixels = torch.stack([probe_pixels(image, self.size) for image in images])
        pixels = pixels.to(next(self.parameters()))
        return torch.cat([self.body(part) for part in pixels.split(256)])

    def looks(self, images: Sequence[Image.Image]) -> list[Look]:
        """The most likely look of each of n images."""
        return self.looks_of(self.embed(images))

    @isolated()
    def looks_of(self, features: Tensor) -> list[Look]:
        """The most likely look of each of n images, from their (n, 128) features by `embed`."""
        best = [head(features).argmax(1).tolist() for head in self.heads]
        names = self._values.values()
        return [
            tuple(own[i] for own, i in zip(names, row, strict=True))
            for row in zip(*best, strict=True)
        ]

    def asked(self, prompts: Sequence[str]) -> list[PartialLook | None]:
        """The part of a look that each of n prompts names; None if its concept is unknown.

        The concept's part of the caption comes before the first comma, the other parts in any order
        after it. Case is ignored.
        """
        of_concept, *others = self._phrases
        found: list[PartialLook | None] = []
        for prompt in prompts:
            first, *parts = (" ".join(part.casefold().split()) for part in prompt.split(","))
            named = dict(of_concept.get(first, {}))
            for part, phrases in product(parts, others):
                named = phrases.get(part, {}) | named
            found.append(tuple(map(named.get, self._values)) if "concept" in named else None)
        return found

    def labels(self, features: Tensor, prompts: Sequence[str]) -> Labels:
        """Labels of n images, from their (n, 128) features by `embed`, with their prompts.

        Both labels are the part of a look that the prompt names, as asked for and as the image
        shows it. The variant is the image's values of all attributes.
        """
        looks, asked = self.looks_of(features), self.asked(prompts)
        concept_only = ("", *[None] * len(self.attributes))  # where the prompt is unknown
        shown = []
        for named, look in zip(asked, looks, strict=True):
            pairs = zip(named or concept_only, look, strict=True)
            shown.append(self.words(tuple(None if part is None else seen for part, seen in pairs)))
        labels = [None if named is None else self.words(named) for named in asked]
        return Labels(labels, shown, [look[1:] for look in looks])

    @cached_property
    def settings(self) -> dict[str, str]:
        """What the features depend on (see `Embedder`)."""
        return {"sha256": digest_of(self.body)}

    def words(self, look: PartialLook) -> str:
        """The prompt that names a look."""
        values = dict(zip(self._values, look, strict=True))
        named = (part for part, names in self._parts if any(map(values.get, names)))
        return ", ".join(_filled(part, values) for part in named)

    def check(self) -> None:
        """Raise ValueError unless all names are strings and the caption has all attributes."""
        names = [name for some in (*self._values.values(), self.attributes) for name in some]
        if not all(isinstance(text, str) for text in (*names, self.caption)):
            raise ValueError("its names and its caption must be strings")
        if {name for _, some in self._parts for name in some} != {*self._values}:
            raise ValueError(f"its caption does not match its attributes: {self.caption!r:.80}")
        _ = self._phrases

    @property
    def _values(self) -> dict[str, list[str]]:
        return {"concept": self.concepts, **self.attributes}

    @property
    def _parts(self) -> list[tuple[str, list[str]]]:
        """The parts of the caption between commas, with the attributes that each contains."""
        parts = self.caption.split(", ")
        return [(one, [name for _, name, *_ in Formatter().parse(one) if name]) for one in parts]

    @cached_property
    def _phrases(self) -> list[dict[str, dict[str, str]]]:
        """For each part of the caption, what it may say, with the values that it then names."""
        found: list[dict[str, dict[str, str]]] = []
        for part, names in self._parts:
            own = [[*self._values[name], *([None] if name != "concept" else [])] for name in names]
            looks = (dict(zip(names, values, strict=True)) for values in product(*own))
            found.append(
                {
                    _filled(part, look).casefold(): {k: v for k, v in look.items() if v}
                    for look in looks
                    if any(look.values())
                }
            )
        return found


def _filled(part: str, values: Mapping[str, str | None]) -> str:
    """A part of a caption with these values, without the attributes that have none."""
    return " ".join(part.format(**{name: value or "" for name, value in values.items()}).split())


def probe_pixels(image: Image.Image, size: int) -> Tensor:
    """Convert an image to a probe's input: (3, size, size) in [-1, 1]."""
    array = np.array(image.convert("RGB").resize((size, size)))
    return torch.from_numpy(array).permute(2, 0, 1).float() / 127.5 - 1


@float32_by_default()
def load_probe(folder: str | Path) -> Probe:
    """Load the probe in a folder. FileNotFoundError if there is none, ValueError if its config or
    its weights are damaged."""
    path = Path(folder, "config.json")
    if not path.is_file():
        where = folder or "(no folder)"
        raise FileNotFoundError(f"there is no probe in {where}: it has no config.json")
    try:
        with redirect_stdout(None):  # huggingface_hub prints a message
            probe = Probe.from_pretrained(folder, strict=True)
        probe.check()
    except Exception as error:  # damaged files raise errors of every kind
        raise ValueError(f"the probe in {folder} is damaged: {reason(error)}") from error
    return probe


def open_probe(folder: Path | None, prompts: Sequence[str]) -> Probe | None:
    """The probe in a folder (see `load_probe`); None if it knows no prompt."""
    probe = None if folder is None else load_probe(folder)
    return probe if probe is not None and any(probe.asked(prompts)) else None
