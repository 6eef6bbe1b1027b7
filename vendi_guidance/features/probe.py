"""The demo's embedder and labeler: a classifier of an image's concept and of its attributes.

Its last hidden layer is the feature.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from string import Formatter
from typing import Any, TypeAlias

import numpy as np
import torch
from huggingface_hub import PyTorchModelHubMixin
from PIL import Image
from torch import Tensor, nn

from vendi_guidance.features.base import Labels
from vendi_guidance.features.network import digest_of
from vendi_guidance.features.weights import reason

Look: TypeAlias = tuple[str, ...]
"""A concept, and then a value of each attribute."""

Asked: TypeAlias = tuple[str | None, ...]
"""A look of which a prompt names the concept and some values; None is left open."""


class Probe(nn.Module, PyTorchModelHubMixin):
    """A convolutional classifier of 64x64 images, with a head for their concept and one for each
    attribute, saved and loaded by huggingface_hub's `save_pretrained` and `from_pretrained`
    (safetensors and JSON).

    Args:
        concepts: their names.
        attributes: each one's name and values.
        caption: how a prompt says a look: "{concept}, {tone} skin tone, {vendor} style". What a
            prompt leaves open, it leaves out.

    Example:
        >>> weight = ("weight", ["regular", "bold"])
        >>> probe = Probe(["letter a", "letter b"], [weight], "{concept}, {weight}")
        >>> probe.asked(["letter b, bold", "letter b", "a castle"])
        [('letter b', 'bold'), ('letter b', None), None]
    """

    def __init__(
        self,
        concepts: Sequence[str],
        attributes: Sequence[tuple[str, Sequence[str]]],  # huggingface_hub sorts a mapping's keys
        caption: str,
    ) -> None:
        super().__init__()
        self.concepts = list(concepts)
        self.attributes = {name: list(values) for name, values in attributes}
        self.caption = caption
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
            *blocks, nn.Flatten(), nn.Linear(128 * 4 * 4, 128), nn.LayerNorm(128), nn.SiLU()
        )
        self.heads = nn.ModuleList(nn.Linear(128, len(names)) for names in self._names)

    def forward(self, pixels: Tensor) -> list[Tensor]:
        """(n, 3, 64, 64) in [-1, 1] to each head's logits, (n, classes): the concept's first."""
        features = self.body(pixels)
        return [head(features) for head in self.heads]

    @torch.no_grad()
    def embed(self, images: Sequence[Image.Image]) -> Tensor:
        """Features of n images: (n, 128) float32."""
        pixels = torch.stack([probe_pixels(image) for image in images]).to(next(self.parameters()))
        return torch.cat([self.body(part) for part in pixels.split(256)])

    def looks(self, images: Sequence[Image.Image]) -> list[Look]:
        """The most likely look of each of n images."""
        return self.looks_of(self.embed(images))

    @torch.no_grad()
    def looks_of(self, features: Tensor) -> list[Look]:
        """The same from the images' features: (n, 128), as `embed` gives them."""
        best = [head(features).argmax(1).tolist() for head in self.heads]
        return [
            tuple(names[i] for names, i in zip(self._names, row, strict=True))
            for row in zip(*best, strict=True)
        ]

    def asked(self, prompts: Sequence[str]) -> list[Asked | None]:
        """What each of n prompts names, in any case and order after the concept; None where the
        probe does not know the concept, before the first comma."""
        known = {name.casefold(): name for name in self.concepts}
        found: list[Asked | None] = []
        for prompt in prompts:
            concept, *rest = (part.strip().casefold() for part in prompt.split(","))
            named = (
                next((value for value in values if self._phrase(name, value) in rest), None)
                for name, values in self.attributes.items()
            )
            found.append((known[concept], *named) if concept in known else None)
        return found

    @cached_property
    def sha256(self) -> str:
        """The digest of the network whose features `looks_of` takes, as embedders have it."""
        return digest_of(self.body)

    def words(self, look: Asked) -> str:
        """The prompt that names a look."""
        known = dict(zip(("concept", *self.attributes), look, strict=True))
        return ", ".join(
            part.format(**known) for name, part in self._phrases.items() if known[name] is not None
        )

    def check(self) -> None:
        """Raise ValueError unless names are texts and the caption has a part for each attribute."""
        names = [name for some in (*self._names, self.attributes) for name in some]
        if not all(isinstance(text, str) for text in (*names, self.caption)):
            raise ValueError("its names and its caption must be texts")
        if self._phrases.keys() != {"concept", *self.attributes}:
            raise ValueError(f"its caption names other attributes: {self.caption!r:.80}")
        for name, values in self.attributes.items():
            for value in values:
                self._phrase(name, value)

    @property
    def _names(self) -> list[list[str]]:
        return [self.concepts, *self.attributes.values()]

    @property
    def _phrases(self) -> dict[str, str]:
        """The parts of the caption, by what they name."""
        parts = self.caption.split(", ")
        return {name: part for part in parts for _, name, *_ in Formatter().parse(part) if name}

    def _phrase(self, attribute: str, value: str) -> str:
        return self._phrases[attribute].format(**{attribute: value}).casefold()


@dataclass(eq=False)
class ProbeLabeler:
    """Labels by a probe (see `Labeler`): an image is right if it shows all that its prompt names,
    and its variant is all of its attributes."""

    probe: Probe

    def __call__(self, images: Sequence[Image.Image], prompts: Sequence[str]) -> Labels:
        return self.from_features(self.probe.embed(images), prompts)

    def from_features(self, features: Tensor, prompts: Sequence[str]) -> Labels:
        """The same from the images' features: (n, 128), by the probe's own network."""
        words, asked = self.probe.words, self.probe.asked(prompts)
        looks, shown = self.probe.looks_of(features), []
        for one, look in zip(asked, looks, strict=True):
            named = one or (look[0], *[None] * (len(look) - 1))
            shown.append(words(tuple(n and seen for n, seen in zip(named, look, strict=True))))
        wanted = [None if one is None else words(one) for one in asked]
        return Labels(wanted, shown, [look[1:] for look in looks])


def probe_pixels(image: Image.Image) -> Tensor:
    """An image as the probe's input: (3, 64, 64) in [-1, 1]."""
    array = np.array(image.convert("RGB").resize((64, 64)))
    return torch.from_numpy(array).permute(2, 0, 1) / 127.5 - 1


def load_probe(folder: str | Path) -> Probe:
    """The probe in a folder.

    Raises:
        FileNotFoundError: there is none.
        ValueError: its config or its weights are damaged.
    """
    path = Path(folder, "config.json")
    if not path.is_file():
        where = folder or "(no folder)"
        raise FileNotFoundError(f"there is no probe in {where}: it has no config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        with redirect_stdout(None):  # huggingface_hub prints that it loads
            probe = Probe.from_pretrained(folder, strict=True, **_of_emoji(config))
        probe.check()
    except Exception as error:  # damaged files raise errors of every kind
        raise ValueError(f"the probe in {folder} is damaged: {reason(error)}") from error
    return probe


def _of_emoji(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the config of a probe of version 0.2 lacks: its attributes were fixed."""
    if "vendors" not in config:
        return {}
    attributes = [("vendor", config["vendors"]), ("tone", config["tones"])]
    return {"attributes": attributes, "caption": "{concept}, {tone} skin tone, {vendor} style"}


def open_labeler(folder: Path | None, prompts: Sequence[str]) -> ProbeLabeler | None:
    """The labeler of the probe in a folder, as of `load_probe`, if it knows some of the prompts."""
    probe = None if folder is None else load_probe(folder)
    return ProbeLabeler(probe) if probe is not None and any(probe.asked(prompts)) else None
