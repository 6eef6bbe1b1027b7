"""Guidance inside the network, for networks that need classifier-free guidance (CFG).

Without CFG such a network hardly knows its prompt, and rounds, whose answers have none, lose what
the prompt names. So the call's own steps stay. While noise is high, each of them moves the output h
of one block of the network, for the prompt and without it alike:

    h <- h + share |h| g / |g|,    g = d Score / d f(h)

where f takes means of h over parts of the image, and g is repeated over each part. CFG has its full
scale. `share` is set once in a call, after its first step, which is made again: there the moves
change the prediction by `OF_CFG` times what CFG adds to it, w (x_c - x_u) at scale w, from the
predictions with the prompt and without. As a share of |h| the right length differs tenfold between
models, in this unit twofold.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from vendi_guidance.guidance.samples import as_rows, unit_rows
from vendi_guidance.guidance.score import SAME, Score
from vendi_guidance.guidance.settings import DIVERSITY, Rounds
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.timing import network_of

OF_CFG = 0.15
"""Length of moves at the default diversity: the change of the prediction, as a share of what CFG
adds to it. On tuning prompts of photographs 0.15 kept 75% of what they name and 0.3 70%, of 79%."""

ABOVE = 4.0
"""Moves are made at steps that begin above this noise-to-signal ratio."""

CFG_STOP = 0.3
"""CFG is off below this noise-to-signal ratio, which pays for finding the length of moves. Off from
0.75 on, as after rounds, it cost two more of 100 details."""

TRIAL, LONGEST = 0.3, 3.0
"""The first move that is tried, and the longest: shares of the norm of a block's output."""

PARTS = 4
"""Features are means over a grid of `PARTS` x `PARTS`, or as many stretches of tokens."""


class Moves:
    """Moves of a block's output in one call.

    Args:
        score: compares features with each other and with those remembered.
        step: of the samples in flight.

    Attributes:
        share: (b, 1) length of each sample's moves, as a share of the norm of the output.
        seen: features at each noise level, (b, 1, ..., 1, c, parts): the number of ones tells the
            level, so that the window keeps each level's samples apart.
    """

    def __init__(self, score: Score, step: Step) -> None:
        self.share = step.latents.new_full((len(step.latents), 1), TRIAL, dtype=torch.float32)
        self.seen: list[Tensor] = []
        self._score = score
        self._prompts = step.prompts
        self._at: object = None
        self._direction = torch.empty(0)

    @property
    def has_direction(self) -> bool:
        """Whether there was anything to move away from at the last step."""
        return bool((self._direction != 0).any())

    def move(self, h: Tensor, own: slice, at: object, ratio: float) -> Tensor:
        """Move the output of a block at a step `at`, which begins at this noise-to-signal ratio.

        Args:
            h: (n b, c, height, width) or (n b, t, c).
            own: the rows with the prompts. The first output of a step has them, and later ones,
                without prompts, are moved in the same direction.
        """
        x = h if h.ndim == 4 else h.mT
        if at != self._at:
            self._at, self._direction = at, self._towards(x[own], ratio)
        length = torch.linalg.vector_norm(as_rows(x), dim=1).view(-1, len(self._direction), 1)
        step = (length * self.share * as_rows(self._direction)).view_as(x).to(x.dtype)
        moved = x + step.where(step.isfinite(), 0)
        return moved if h.ndim == 4 else moved.mT

    def _towards(self, x: Tensor, ratio: float) -> Tensor:
        """(b, c, ...) directions of the score's gradient, of unit length."""
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        if x.ndim == 4:
            pooled = F.adaptive_avg_pool2d(x, PARTS)
        else:
            pooled = F.adaptive_avg_pool1d(x, PARTS**2)
        level = round(4 * math.log2(min(max(ratio, 1.2), 1000.0)))
        features = pooled.view(len(x), *[1] * level, x.shape[1], -1)
        self.seen = [it for it in self.seen if it.ndim != features.ndim] + [features]
        window = self._score.window.of_shape(features.shape[1:])
        found = self._score.objective.gradient(features, self._prompts, window).gradient
        whole = F.interpolate(found.view_as(pooled), x.shape[2:], mode="nearest")
        return unit_rows(as_rows(whole)).view_as(whole)


def _lengths(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(as_rows(x), dim=1, keepdim=True)


def begin(
    step: Step, score: Score, settings: Rounds, without: Tensor, scale: float
) -> tuple[Moves | None, Step]:
    """Begin to move samples inside the network, given what `Denoiser.without_prompts` returned.

    Returns the moves of the steps to come, and the step as if its own evaluation had been moved;
    None and the step if even the longest moves have too little effect on the network.
    """
    network, moves, end = network_of(step), Moves(score, step), network_of(step).levels[1]
    added = scale * (network.denoised - without)
    plain = without + added
    change = network.denoise_moved(moves) - plain
    if len(moves.seen) and not moves.has_direction:  # a lone image, and none is remembered
        network.move_inside(moves)
        return moves, step
    alike = (score.objective.similarity(step.prompts, change) > SAME).to(change)
    wanted = OF_CFG * settings.diversity / DIVERSITY * (alike @ _lengths(added))
    ratio = wanted / (alike @ _lengths(change))
    if (TRIAL * ratio > LONGEST).all():
        return None, step
    moves.share = (TRIAL * ratio).nan_to_num(0).clamp(max=LONGEST)
    clean = plain + (moves.share / TRIAL * as_rows(change)).view_as(change)
    given = network.denoised if step.prediction is None else step.prediction.denoised
    noise = (step.latents - end.signal * given) / end.noise
    network.move_inside(moves)
    network.restart(clean, noise)
    return moves, step.with_finite_latents(end.mix(clean, noise))
