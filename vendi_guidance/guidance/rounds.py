"""Rounds: guidance at one noise level, where the network answers each move.

What a prompt leaves open is decided at high noise. There the same denoising step is repeated: each
round adds fresh noise of the same level to the predicted clean latents x0, ascends the score, and
predicts again,

    z = a x0 + s eps,    z <- z + a eta (1 - r/R) d grad Score / |grad Score|,    x0 = predict(z),

where d is the distance between the first predictions for the same prompt: little where a prompt
says much, and large where it leaves much open. Of several draws of eps, each sample keeps the one
whose prediction differs most from the others. The network takes back moves against the prompt, and
follows the others. Moves fade, so that the last rounds end on what the network itself would
generate.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vendi_guidance.guidance.ascent import ascent_direction, move
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.objectives import Objective
from vendi_guidance.guidance.settings import Settings
from vendi_guidance.guidance.step import Generator, Prediction, Step
from vendi_guidance.guidance.window import as_rows

ALONE = 2.0
"""The distance between two samples, in distances of a sample's prediction from the one with fresh
noise: about what was measured. It stands in where no other sample has the same prompt."""

LONGER = 4.0
"""How many times as long moves can become where a call affords few evaluations, half that with CFG,
which no distilled network takes. Longer ones lose what prompts say: at 2 steps, 8 times as long
kept 73% for 98%."""

SAME = 0.99
"""The similarity from which on two prompts count as the same."""


class Rounds:
    """Repeats one denoising step of a call: the one whose noise level is nearest to the settings'.

    That level is sqrt(D) `settings.level`, noise to signal, for latents of D numbers: the noise
    that hides a picture grows with its size. A call of few steps has fewer rounds: they never take
    more evaluations of the network than the call's own steps. With half the evaluations, moves are
    twice as long: networks distilled to few steps take nearly all of a move back.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.are_made = False

    def is_due(self, step: Step) -> bool:
        """Due once: at the first step that begins nearer to the level than it ends, in log."""
        if self.are_made or step.network is None:
            return False
        start, end = step.network.levels
        level = self.settings.level * step.latents[0].numel() ** 0.5
        is_nearest = step.is_last or start.ratio * end.ratio <= level**2
        return start.ratio < math.inf and is_nearest

    def __call__(self, step: Step, memory: Memory) -> Step:
        if step.network is None:
            raise RuntimeError("rounds need the network")
        self.are_made = True
        settings, network = self.settings, step.network
        start, end = network.levels
        clean = network.denoised
        objective = memory.objective(settings, step.prompts)
        spread = _spread(clean, objective.similarity(step.prompts, clean))
        rounds, candidates = self.affordable(step)
        fewer = settings.rounds * settings.candidates / (rounds * candidates)
        scale = settings.scale * min(fewer, LONGER / network.evaluations_per_step)
        for done in range(rounds):
            at = replace(step, latents=start.signal * clean, prediction=Prediction(clean, *start))
            direction = ascent_direction(at, memory, settings)
            fading = scale * (1 - done / rounds)
            tried, predicted = [], []
            for _ in range(candidates):
                z = start.mix(clean, _noise(step.generator, clean))
                length = fading * start.signal * spread / as_rows(z).norm(dim=1, keepdim=True)
                tried.append(move(z, direction, length.nan_to_num(0), memory))
                predicted.append(network.denoise(tried[-1]))
            before = clean
            noisy, clean = self._chosen(
                step, objective, torch.stack(tried), torch.stack(predicted), memory
            )
            spread = spread.where(spread.isfinite(), ALONE * _distance(before, clean))
        noise = (noisy - start.signal * clean) / start.noise
        network.restart(clean, noise)
        latents = end.mix(clean, noise)
        finite = latents.flatten(1).isfinite().all(dim=1).view(-1, *[1] * (latents.ndim - 1))
        return step.with_latents(latents.where(finite, step.latents).to(step.latents.dtype))

    def affordable(self, step: Step) -> tuple[int, int]:
        """How many rounds, and of how many candidates, take no more evaluations of the network for
        each sample than the call's steps. Rounds keep more of what prompts say than candidates do.
        """
        if step.network is None:
            raise RuntimeError("rounds need the network")
        most = step.count * step.network.evaluations_per_step
        rounds = min(self.settings.rounds, most)
        return rounds, min(self.settings.candidates, most // rounds)

    def _chosen(
        self, step: Step, objective: Objective, noisy: Tensor, clean: Tensor, memory: Memory
    ) -> tuple[Tensor, Tensor]:
        """Of (c, b, ...) candidates and their predictions, (b, ...) that differ most."""
        if len(noisy) == 1:
            return noisy[0], clean[0]
        space = self.settings.build_space()
        features = torch.stack([space.remember(step.pipeline, one) for one in clean])
        taken = objective.choose(features, step.prompts, memory.window_of(features[0]))
        rows = torch.arange(len(taken), device=taken.device)
        return noisy[taken, rows], clean[taken, rows]


def _distance(one: Tensor, other: Tensor) -> Tensor:
    """(b, 1) between the samples of two batches."""
    return as_rows(one - other).norm(dim=1, keepdim=True)


def _spread(clean: Tensor, similarity: Tensor) -> Tensor:
    """(b, 1) median distance of each prediction from the others for the same prompt, NaN where
    there are none."""
    rows = as_rows(clean)
    # from differences: inner products leave rounding of the distance between copies
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    others = (similarity > SAME).fill_diagonal_(False)
    return distances.where(others, torch.nan).nanmedian(dim=1, keepdim=True).values


def _noise(generator: Generator, like: Tensor) -> Tensor:
    """Drawn where its generator is: one on the CPU gives every device the same noise."""
    if isinstance(generator, Sequence):
        if len(generator) > 1:
            rows = zip(like.split(1), generator, strict=True)
            return torch.cat([_noise(one, row) for row, one in rows])
        [generator] = generator
    place = like.device if generator is None else generator.device
    noise = torch.randn(like.shape, generator=generator, device=place, dtype=like.dtype)
    return noise.to(like.device)
