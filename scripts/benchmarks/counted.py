"""What images of published models cost with and without guidance: counted, not measured.

Networks, decoders and text encoders are made of their configurations without weights, on torch's
meta device, which computes shapes only. `FlopCounterMode` counts their operations and `Live` the
memory of what they compute. The package's own guided pipelines, with the schedulers, steps and CFG
of `vendi-guidance generate`, make a batch of 8 with a network that returns noise: so evaluations
are counted, not derived.

Seconds are those operations at {share:.0%} of what the card's data sheet promises, an assumption.
docs/your-model.md compares them with times that others published.

\b
  python -m scripts.benchmarks.counted                   both tables of docs/your-model.md, a minute
  python -m scripts.benchmarks.counted --model SDXL
"""

import inspect
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
import diffusers
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from tqdm import tqdm

from scripts.benchmarks.measuring import line_of, several
from scripts.benchmarks.meta import Evaluated, Live, evaluate, on_meta, weights_of
from scripts.benchmarks.published import CARDS, MODELS, Card, Model
from vendi_guidance.adapter.arguments import input_of
from vendi_guidance.commands.cli import Command
from vendi_guidance.comparison.network import rows_counted
from vendi_guidance.guidance.settings import STRENGTH
from vendi_guidance.guidance.window import WINDOW, SlidingWindow
from vendi_guidance.runs.pipelines import guided_class
from vendi_guidance.runs.sampling import Sampling, sampling_of

BATCH = 8
"""The default of `vendi-guidance generate`."""

SHARE = 0.4
"""Of a card's and a bus's peak that is assumed to be reached."""

PCIE = 31.5
"""GB/s of PCIe 4.0 x16."""

FREE = 0.1
"""The share of a card that is left to what is not counted, as workspaces: SDXL in bfloat16 took
8.96 GB on an A100, 5% more, or 12% if these are GiB (collated_results_sdxl.csv in
https://huggingface.co/datasets/sayakpaul/sample-datasets)."""


class Standin(nn.Module):
    """Stands for a network in a pipeline: takes what the network takes, and returns noise in the
    shape of what it returns.

    Attributes:
        live: gets to know of the network's activations.
        evaluated: what the network costs, by how many rows it is given.
    """

    device, dtype = torch.device("cpu"), torch.bfloat16

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        # of a class of its own, whose forward names the network's arguments
        forward = wraps(type(network).forward)(type(self).forward)
        self.__class__ = type("Standin", (Standin,), {"forward": forward})
        self.__dict__["network"] = network  # not a part of this module, whose device is another
        self.live = Live("cpu")
        self.evaluated: dict[int, Evaluated] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["network"], name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        rows = len(input_of(args, kwargs))
        if rows not in self.evaluated:
            args, kwargs = tree_map_only(Tensor, lambda x: x.to("meta"), (args, kwargs))
            self.evaluated[rows] = evaluate(self.network, *args, **kwargs)
        found = self.evaluated[rows]
        self.live.note(found.activations)
        return tree_map_only(Tensor, lambda x: torch.randn(x.shape, dtype=x.dtype), found.output)


class Read(SlidingWindow):
    """A window that counts the bytes read of it, as if it were full."""

    read = 0

    def products(self, unit: Tensor) -> Tensor:
        self.read += self.size * unit.shape[1] * self.dtype.itemsize
        return super().products(unit)

    def add_weighted(self, total: Tensor, weights: Tensor) -> Tensor:
        self.read += self.size * total.shape[1] * self.dtype.itemsize
        return super().add_weighted(total, weights)


@dataclass(frozen=True)
class Made:
    """What a batch costs.

    Attributes:
        rows: that the network evaluated.
        calls: of the network.
        memory: at most, in bytes, beside weights and window.
        window, read: the bytes of a full window, and how many are read of it.
    """

    rows: int
    calls: int
    memory: int
    window: int
    read: int


def make(model: Model, network: Standin, sampling: Sampling, strength: float) -> Made:
    """A batch of images by the package's guided pipeline."""
    takes = inspect.signature(model.pipeline.__init__).parameters
    parts: dict[str, Any] = {
        name: None for name, it in takes.items() if name != "self" and it.default is it.empty
    }
    parts["unet" if "unet" in takes else "transformer"] = network
    pipe = guided_class(model.pipeline)(**parts | {"scheduler": model.scheduler()})
    pipe.set_progress_bar_config(disable=True)
    window = pipe.guidance.memory.window = Read(WINDOW)
    prompts: dict[str, Any] = {
        name: (torch.ones if "mask" in name else torch.randn)(BATCH, *shape, dtype=network.dtype)
        for name, shape in model.prompt.items()
    }
    if model.lists:
        prompts = {name: list(x) for name, x in prompts.items()}
    if (sampling.guidance_scale or 0) > 1:
        prompts |= {f"negative_{name}": x for name, x in prompts.items()}
    arguments = {"negative_prompt": None, **prompts, **sampling.call, "output_type": "latent"}
    pipe(**arguments, diversity=strength)  # lets samples enter the window
    window.read = 0
    with rows_counted(pipe) as rows, Live("cpu") as network.live:
        pipe(**arguments, diversity=strength)
    tensors = (window.features, window.prompts, window.inner_products)
    size = sum(x.untyped_storage().nbytes() for x in tensors if x is not None)
    return Made(sum(rows), len(rows), network.live.peak, size, window.read)


@dataclass(frozen=True)
class Count:
    """What images of a model cost.

    Attributes:
        steps: of a call.
        plain, guided: what a batch costs without and with guidance.
        evaluation, rest: operations of the network for one row; of the text encoders and the
            decoder for one image.
        network, encoders, decoder: bytes of weights in half precision.
        decoding: bytes of the decoder's activations, for one image.
    """

    steps: int
    plain: Made
    guided: Made
    evaluation: float
    rest: float
    network: int
    encoders: tuple[int, ...]
    decoder: int
    decoding: int

    @property
    def cfg(self) -> bool:
        return self.plain.rows > self.plain.calls * BATCH

    @property
    def guidance(self) -> int:
        """Bytes that guidance keeps and computes: the window, and what a batch's rounds need."""
        return self.guided.window + self.guided.memory - self.plain.memory

    @property
    def active(self) -> float:
        """Bytes of the network's activations and the pipeline's latents, for one image."""
        return self.plain.memory / BATCH

    def flops(self, made: Made) -> float:
        """For one image."""
        return self.evaluation * made.rows / BATCH + self.rest

    def memory(self, offload: str, batch: int) -> float:
        """On the card, at most; images are decoded one by one (`--vae-slicing`)."""
        network = self.active * batch
        match offload:
            case "none":
                weights = self.network + sum(self.encoders) + self.decoder
                most = weights + max(network, self.decoding)
            case "model":
                most = max(self.network + network, self.decoder + self.decoding, *self.encoders)
            case _:
                most = max(network, self.decoding)
        return most + self.guidance

    def fit(self, card: Card) -> tuple[str, int]:
        """The least offloading with which an image fits, and the largest batch that then does."""
        room = (1 - FREE) * card.memory * 2**30
        offload = next(
            (one for one in ("none", "model") if self.memory(one, 1) <= room), "sequential"
        )
        return offload, next((n for n in (8, 4, 2) if self.memory(offload, n) <= room), 1)

    def seconds(self, made: Made, card: Card) -> float:
        """For one image."""
        offload, batch = self.fit(card)
        computed = self.flops(made) / (SHARE * card.tflops * 1e12)
        moved = made.calls * self.network / (SHARE * PCIE * 1e9) * (offload == "sequential")
        return computed + (moved + made.read / (card.bandwidth * 1e9)) / batch


def count(model: Model) -> Count:
    sampling = sampling_of(model.pipeline, Path("none"), model.name)
    network, decoder = on_meta(model.network), on_meta(model.decoder)
    standin = Standin(network)
    plain, guided = (make(model, standin, sampling, strength) for strength in (0, STRENGTH))
    side = model.size // 8
    latents = torch.empty(1, decoder.config.latent_channels, side, side, dtype=torch.bfloat16)
    decoding = evaluate(decoder.decode, latents.to("meta"))
    encoders = [(on_meta(build), tokens) for build, tokens in model.encoders]
    texts = sum(
        evaluate(encoder, torch.ones(1, tokens, dtype=torch.long, device="meta")).flops
        for encoder, tokens in encoders
    )
    first_rows = plain.rows // plain.calls
    return Count(
        steps=sampling.steps,
        plain=plain,
        guided=guided,
        evaluation=standin.evaluated[first_rows].flops / first_rows,
        rest=texts * first_rows / BATCH + decoding.flops,
        network=2 * weights_of(network),
        encoders=tuple(2 * weights_of(encoder) for encoder, _ in encoders),
        decoder=2 * weights_of(decoder),
        decoding=decoding.activations,
    )


COSTS = (
    "| model | steps | evaluations | TFLOP each | TFLOP per image | weights, GB | activations, GB "
    "| guidance, MB |",
    "|---|---|---|--:|---|---|---|--:|",
)


def costs(name: str, found: Count) -> str:
    """A line of the table of models."""
    made = (found.plain, found.guided)
    weights = found.network, sum(found.encoders), found.decoder
    return line_of(
        [
            name,
            f"{found.steps}, {'CFG' if found.cfg else 'no CFG'}",
            " → ".join(f"{one.rows / BATCH:g}" for one in made),
            f"{found.evaluation / 1e12:.1f}",
            " → ".join(f"{found.flops(one) / 1e12:,.0f}" for one in made),
            ", ".join(f"{size / 1e9:.1f}" for size in weights),
            f"{found.active / 1e9:.1f}, {found.decoding / 1e9:.1f}",
            f"{found.guidance / 1e6:.0f}",
        ]
    )


def times(name: str, found: Count) -> str:
    """A line of the table of cards."""
    cells = []
    for card in CARDS.values():
        offload, batch = found.fit(card)
        made = (found.plain, found.guided)
        cell = " → ".join(f"{float(f'{found.seconds(one, card):.2g}'):g}" for one in made)
        remarks = [offload] * (offload != "none") + [f"batch {batch}"] * (batch < BATCH)
        cells.append(cell + f" ({', '.join(remarks)})" * bool(remarks))
    return line_of([name, *cells])


@click.command(cls=Command, help=(__doc__ or "").format(share=SHARE))
@several("--model", "names", click.Choice(list(MODELS)), MODELS, "Which.")
def main(names: tuple[str, ...]) -> None:
    diffusers.utils.logging.set_verbosity_error()
    found = {name: count(MODELS[name]) for name in tqdm(names, leave=False)}
    lines = [*COSTS, *(costs(*item) for item in found.items()), ""]
    lines += [line_of(["model", *CARDS]), "|---|" + "---|" * len(CARDS)]
    click.echo("\n".join([*lines, *(times(*item) for item in found.items())]))


if __name__ == "__main__":
    main(prog_name="python -m scripts.benchmarks.counted")
