"""Guidance inside the network, where rounds would lose the prompt.

Rounds ask the network without classifier-free guidance (CFG) for its answers. Where it hardly knows
its prompt without CFG, or where it was distilled and images of a prompt differ as much as those of
other prompts, answers lose what the prompt names. There the call's own steps stay. At the first of
them, the output h_i of one block of the network, for each sample i, loses a share s of what samples
of similar prompts have in common there, with the prompt and without:

    h_i <- h_i - s sum_j k(p_i, p_j) c_j / sum_j k(p_i, p_j)

where c_j is the mean of h_j over the image and k the kernel of prompts. This is a step against the
gradient of sum_ij k(p_i, p_j) <c_i, c_j>, the order-2 conditional score with a linear kernel. What
follows in the network is normalized, so that what differs between samples counts for more. CFG has
its full scale. Kwon, Lee & Choi (ICML 2026, arXiv:2606.06813) take the share from each sample's own
mean, as is done here for a lone sample.
"""

import math

import torch
from torch import Tensor

from vendi_guidance.guidance.samples import lengths
from vendi_guidance.guidance.score import Score, distances
from vendi_guidance.guidance.settings import DIVERSITY, Rounds
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.timing import network_of

DECIDED = 0.76
"""Below this root mean square of a first prediction of clean latents without CFG, whose own is
about 1, the prompt is taken to leave most of the picture open, and the network to need CFG.
Photographs 0.37 to 0.74, emoji 0.78 to 1.00, portraits 0.94 to 1.07."""

VARIED = 4.8
"""A distilled network, of which no undistilled one is known, is taken to lose its prompt in rounds
if a perturbed prompt moves its first predictions by less than this times the median distance
between samples. Photographs 1.6 to 4.3 where their size is not below `DECIDED`, emoji 5.2 to 12 but
for one prompt, portraits 9 to 16."""

SHARE, SHARE_WITHOUT_CFG = 0.75, 0.5
"""Shares that are taken at the default diversity; they grow with the root of the diversity."""

FIRST_STEPS = 0.15
"""Share of the call's steps at which it is taken, the published one."""

EARLY = 4.0
"""A call with CFG that begins below this noise-to-signal ratio is not guided: its image is decided
there."""

CFG_STOP = 0.3
"""CFG is off below this noise-to-signal ratio, which pays for the first step, which is made again.
Off from 0.75 on, as after rounds, it cost two more of 100 details."""


class Moves:
    """Moves of a block's output in one call.

    Args:
        score: has the kernel of prompts.
        step: of the samples in flight, before the first step that is moved.
        share: s above.

    Attributes:
        until: noise-to-signal ratio; steps that begin above it are moved.
        are_made: whether an output was moved.
    """

    are_made = False

    def __init__(self, score: Score, step: Step, share: float) -> None:
        network = network_of(step)
        ratios = [network.levels[0].ratio, *network.ahead]
        after = math.ceil(FIRST_STEPS * len(ratios))
        self.until = ratios[after] if after < len(ratios) else 0.0
        like = step.latents.new_empty(len(step.latents), 1, dtype=torch.float32)
        self._similarity = share, score.objective.similarity(step.prompts, like)

    def move(self, h: Tensor) -> Tensor:
        """A block's output after its move.

        Args:
            h: (n b, c, height, width) or (n b, t, c): the samples n times, with CFG twice. Outputs
                of other lengths are returned as they are, such as those with a row a frame.
        """
        share, similarity = self._similarity
        if len(h) % len(similarity) or len(h) > 3 * len(similarity):
            return h
        self.are_made = True
        precise = torch.promote_types(h.dtype, torch.float32)
        mean = h.mean(dim=(2, 3) if h.ndim == 4 else (1,), keepdim=True, dtype=precise)
        rows = mean.view(-1, len(similarity), mean[0].numel())
        finite = rows.isfinite().all(dim=2, keepdim=True)
        weights = similarity.to(rows) * finite.mT  # (n, b, b)
        common = weights @ rows.where(finite, 0) / weights.sum(dim=2, keepdim=True)
        moved = h - share * common.view_as(mean).to(h.dtype)
        return moved.where(finite.view(-1, *[1] * (h.ndim - 1)), h)


def needs_cfg(clean: Tensor) -> bool:
    """Whether a network is taken to need CFG to know its prompts, from its (b, ...) first
    prediction of clean latents with the prompts."""
    size = lengths(clean) / clean[0].numel() ** 0.5
    return bool(size[size.isfinite()].mean() < DECIDED)


def is_varied(step: Step, score: Score, proposal: Tensor) -> bool:
    """Whether predictions of a prompt differ about as much as those of other prompts, given the
    (b, ...) predictions for a perturbed one."""
    network = network_of(step)
    clean = network.denoised
    apart = distances(step, score, clean, network.levels[0]).nanmedian(dim=1, keepdim=True).values
    moved = lengths(proposal - clean) / apart
    return bool(moved[moved.isfinite()].mean() < VARIED)


def begin(step: Step, score: Score, settings: Rounds) -> tuple[Moves, Step] | None:
    """Begin to move samples inside the network.

    Returns the moves of the steps to come, and the step as if its own evaluation had been moved;
    None if no block is known, or if its output has other rows than the samples.
    """
    network = network_of(step)
    if not network.has_blocks:
        return None
    share = SHARE_WITHOUT_CFG if network.without_prompts() is None else SHARE
    moves = Moves(score, step, share * math.sqrt(settings.diversity / DIVERSITY))
    clean = network.denoise_moved(moves)
    if not moves.are_made:
        return None
    given = network.denoised if step.prediction is None else step.prediction.denoised
    start, end = network.levels
    began = start.mix(given, (step.latents - end.signal * given) / end.noise)
    noise = (began - start.signal * clean) / start.noise
    network.move_inside(moves)
    network.restart(clean, noise)
    return moves, step.with_finite_latents(end.mix(clean, noise))
