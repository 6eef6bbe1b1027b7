"""Guidance inside the network, where rounds would lose the prompt.

Rounds ask the network without classifier-free guidance (CFG) for its answers. Where it hardly knows
its prompt without CFG, or where it was distilled and images of a prompt differ as much as those of
other prompts, answers lose what the prompt names. There the call's own steps stay, and in joint
networks, whose text tokens can be moved further than an image at the same loss. While noise is
high, each of them moves the output h of one block of the network, with the prompt and without:

    h <- h + share |h| g / |g|,    g = d Score / d f(h)

where f takes means of h over parts of the image, and g is repeated over each part. CFG has its full
scale. `share` is set once in a call, after its first step, which is made again: there the moves
change the prediction by `OF_CFG` times what CFG adds to it, w (x_c - x_u) at scale w, from the
predictions with the prompt and without; where CFG is off or adds nothing, by `OF_SPREAD` times the
distance between samples of the prompt; `KNOWN` times as far where the network knows its prompt
without CFG. As a share of |h| the right length differs tenfold between models, as a share of what
CFG adds twofold.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from vendi_guidance.guidance.samples import as_rows, lengths
from vendi_guidance.guidance.score import Score, distances, spread
from vendi_guidance.guidance.settings import DIVERSITY, Rounds
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.timing import is_distilled, network_of
from vendi_guidance.kernels.precision import isolated

DECIDED = 0.76
"""Below this root mean square of a first prediction of clean latents without CFG, whose own is
about 1, the prompt is taken to leave most of the picture open, and the network to need CFG."""

VARIED = 4.8
"""A distilled network, of which no undistilled one is known, is taken to lose its prompt in rounds
if a perturbed prompt moves first predictions by less than this times samples' median distance."""

OF_CFG = 0.15
"""Length of moves at the default diversity: the change of the prediction, as a share of what CFG
adds to it. Twice the length keeps 4 of 100 named details less."""

OF_SPREAD = 0.1
"""The same without CFG, as a share of the distance between samples of a prompt."""

KNOWN = 5.0
"""How many times longer moves are where the network knows its prompt without CFG."""

ABOVE = 4.0
"""Moves are made at steps that begin above this noise-to-signal ratio."""

CFG_STOP = 0.33
"""CFG is off below this noise-to-signal ratio, which pays for finding the length of moves."""

TRIAL, LONGEST = 0.3, 10.0
"""The first move that is tried, and the longest: shares of the norm of a block's output."""

ROUNDING = 1e-3
"""CFG is taken to add nothing, as where the prompt is the negative prompt, below this share of the
prediction."""

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
            own: the rows with the prompts. Only those of a step's first output are read; later
                ones are moved in the same direction.
        """
        x = h if h.ndim == 4 else h.mT
        moved = x + self._step(x, own, at, ratio)
        return moved if h.ndim == 4 else moved.mT

    @isolated()
    def _step(self, x: Tensor, own: slice, at: object, ratio: float) -> Tensor:
        """What is added to x: (n b, c, ...), in its dtype."""
        if at != self._at:
            self._at, self._direction = at, self._towards(x[own], ratio)
        # other outputs of a step may have another size, as negative prompts of other lengths do
        # float64, in which no square of a small gradient vanishes
        norm = lengths(F.interpolate(self._direction, x.shape[2:]), torch.float64)
        length = lengths(x).view(-1, len(norm), 1) * self.share / norm
        step = (length * self._direction.flatten(1)).to(x.dtype).nan_to_num_(0, 0, 0)
        return F.interpolate(step.view(len(x), *self._direction.shape[1:]), x.shape[2:])

    def _towards(self, x: Tensor, ratio: float) -> Tensor:
        """(b, c, ...) gradients of the score, of `PARTS` x `PARTS` or `PARTS`^2 means."""
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
        return found.view_as(pooled)


def needs_cfg(clean: Tensor) -> Tensor:
    """Whether a network is taken to need CFG to know its prompts, from its (b, ...) first
    prediction of clean latents with the prompts: a bool on its device."""
    size = lengths(clean) / clean[0].numel() ** 0.5
    return size.where(size.isfinite(), torch.nan).nanmean() < DECIDED


def is_varied(step: Step, score: Score, proposal: Tensor) -> bool:
    """Whether predictions of a prompt differ about as much as those of other prompts, given the
    (b, ...) predictions for a perturbed one."""
    network = network_of(step)
    clean = network.denoised
    # the lower median: on GPUs, `nanmedian` has no deterministic algorithm
    apart = distances(step, score, clean, network.levels[0])
    apart = apart.nanquantile(0.5, dim=1, keepdim=True, interpolation="lower")
    moved = lengths(proposal - clean) / apart
    return bool(moved[moved.isfinite()].mean() < VARIED)


def begin(step: Step, score: Score, settings: Rounds) -> tuple[Moves, Step] | None:
    """Begin to move samples inside the network.

    Returns the moves of the steps to come, and the step as if its own evaluation had been moved;
    None if no block is known, or if even the longest moves have too little effect.
    """
    network, moves = network_of(step), Moves(score, step)
    if not network.has_blocks:
        return None
    plain = network.denoised
    scale: Tensor | float = 1.0
    unit = torch.full_like(moves.share, torch.nan)  # where CFG is off, or adds nothing
    longer = 1.0 if is_distilled(step) else torch.where(needs_cfg(plain), 1.0, KNOWN).float()
    if found := network.without_prompts():
        without, scale = found
        added, least = scale * (plain - without), ROUNDING * lengths(plain)
        plain, length = without + added, lengths(added)
        unit = (OF_CFG * length).where(length > least, torch.nan)
    change = network.denoise_moved(moves, scale) - plain
    if len(moves.seen) and not moves.has_direction:  # a lone image, and none is remembered
        network.move_inside(moves)
        return moves, step
    if unit.isnan().any():
        apart = OF_SPREAD * spread(distances(step, score, plain, network.levels[0]))
        unit = unit.where(unit.isfinite(), apart)
    dial = settings.diversity / DIVERSITY
    ratio = dial * longer * score.ratio(step.prompts, unit, lengths(change))
    known = ratio[(ratio > 0) & ratio.isfinite()]
    if not len(known) or (TRIAL * known > LONGEST).all():
        return None
    # a prompt's only sample has no distance
    moves.share = (TRIAL * ratio.where(ratio > 0, known.mean())).clamp(max=LONGEST)
    clean = plain + (moves.share / TRIAL * as_rows(change)).view_as(change)
    given = network.denoised if step.prediction is None else step.prediction.denoised
    start, end = network.levels
    began = start.mix(given, (step.latents - end.signal * given) / end.noise)
    noise = (began - start.signal * clean) / start.noise
    network.move_inside(moves)
    network.restart(clean, noise)
    return moves, step.with_finite_latents(end.mix(clean, noise))
