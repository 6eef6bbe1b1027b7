"""Guidance at the sampler's own steps, as far as variety is missing.

Rounds ask the network without classifier-free guidance (CFG) for its answers. Where it hardly knows
its prompt without CFG, they lose what the prompt names. There, while noise is high, samples are
moved apart at each of the call's own steps, for no further evaluation. From the clean latents x
that a step predicts with CFG, and x_c without, samples go on as if it had predicted

    x <- x + l g / |g|,    g = d Score / d x_c,    l = 0.7 |x| max(t - d / |x_c|, 0)

with the noise that they have. d is the median distance of a sample's x_c to the others' for its
prompt. At the first step d / |x_c| tells how varied its images will be (a correlation of .9): it is
about 0.9 where a network is varied, and half of that where it repeats itself. Moves of all samples
bring it to t, and those that are as far apart already stay. t^2 is the dial: the share of a
prediction that shall differ from sample to sample. The gradient is that of predictions without CFG:
moves along the one of x would undo what CFG adds of the prompt.
"""

from dataclasses import replace

import torch
from torch import Tensor

from vendi_guidance.guidance.noise import Noise
from vendi_guidance.guidance.samples import lengths
from vendi_guidance.guidance.score import SAME, Score, between
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Prediction, Step
from vendi_guidance.guidance.timing import FEW, has_cfg, is_distilled, network_of

ABOVE = 3.0
"""Samples are moved at steps that begin above this noise-to-signal ratio."""

KNOWN = 0.55
"""The target t, as a share of the usual one, where the network knows its prompt without CFG."""

OUTWARD = 0.7
"""How far two samples move, as a share of the change of their distance: about 1 / sqrt(2)."""

DECIDED = 0.76
"""Below this root mean square of a first prediction of clean latents without CFG, whose own is
about 1, the prompt is taken to leave most of the picture open, and the network to need CFG."""

VARIED = 0.4
"""Rounds are taken to lose the prompt of a distilled network whose samples differ by more than this
share of their norm: measured are 0.57 to 1.1 where they do, and 0.03 to 0.31 where they do not."""

SPREAD = 0.22
"""The same with CFG, at its first step: 0.31 to 1.2, and 0.11 to 0.16. Asked where predictions are
sharper than `DECIDED`, as those of tuned networks are, and smaller than clean latents."""


def size_of(clean: Tensor) -> float:
    """The root mean square of (b, ...) predictions, averaged over those that are finite."""
    size = lengths(clean) / clean[0].numel() ** 0.5
    return float(size.where(size.isfinite(), torch.nan).nanmean())


class OwnSteps:
    """The moves of one call, which evaluate the network for lone images only, once.

    Args:
        step: the first step that was seen.
        score: what moves raise.
        settings: of the call; `diversity` is the dial.
    """

    def __init__(self, step: Step, score: Score, settings: Rounds) -> None:
        network = network_of(step)
        self._score = score
        similarity = score.objective.similarity(step.prompts, network.denoised)
        self._are_lone = bool((similarity > SAME).sum() == len(similarity))
        self._apart: Tensor | None = None  # of lone images
        self._needs_cfg = has_cfg(network) and self._is_open(step)
        self._target = (1.0 if self._needs_cfg else KNOWN) * settings.diversity**0.5

    def _is_open(self, step: Step) -> bool:
        """Whether a first prediction without CFG leaves open what CFG then decides."""
        size = size_of(network_of(step).denoised)
        if self._are_lone or not DECIDED <= size < 1:
            return size < DECIDED
        return bool(self._distances(step).nanmean() > SPREAD)

    def __str__(self) -> str:
        return f"its own steps, until samples differ by {self._target:.2g} of their norm"

    def are_better(self, step: Step) -> bool:
        """Whether this first step tells that rounds would lose the prompt: the network needs CFG,
        or was distilled from one that does. Nor are rounds made with joint networks, but in short
        calls, in which moves lose more of what prompts say."""
        network = network_of(step)
        if network.levels[0].ratio <= ABOVE:
            return False
        if is_distilled(step):  # rounds can follow the last step, too
            return not step.is_last and bool(self._distances(step).nanmean() > VARIED)
        return self._needs_cfg or (network.is_joint and step.count > FEW)

    def is_due(self, step: Step) -> bool:
        """Whether the samples are moved after this step."""
        if step.network is None or step.is_last:
            return False
        start, end = step.network.levels
        return start.ratio > ABOVE and end.noise > 0

    def move(self, step: Step) -> Step:
        """The step with samples moved apart; those whose move is not finite stay."""
        network, score = network_of(step), self._score
        end, clean = network.levels[1], network.denoised
        given = clean if step.prediction is None else step.prediction.denoised
        noise = (step.latents - end.signal * given) / end.noise
        direction = score.gradient(replace(step, prediction=Prediction(clean, *end)))
        missing = (self._target - self._distances(step)).clamp(min=0)
        added = OUTWARD * lengths(given) * missing * direction
        finite = torch.linalg.vector_norm(added, torch.inf, dim=1, keepdim=True) < torch.inf
        score.count_skipped(finite)
        moved = given + added.where(finite, 0).view_as(given)
        network.restart(moved, noise)
        return step.with_finite_latents(end.mix(moved, noise))

    def _distances(self, step: Step) -> Tensor:
        """(b, 1) the median distance of each sample's prediction to the others' for its prompt, as
        a share of its norm; where it is its prompt's only one, the mean of the other samples, and
        where all are, what one more evaluation of the network tells at the first of these steps."""
        network, score = network_of(step), self._score
        clean = network.denoised
        if self._apart is not None and len(self._apart) == len(clean):
            return self._apart
        found = between(clean, score.objective.similarity(step.prompts, clean))
        if self._are_lone and not found.isfinite().any():
            level = network.levels[0]
            noise = level.noise * Noise(step.first_latents).like(clean)
            found = lengths(network.denoise(noise, level) - clean)
        found = found / lengths(clean)
        # the lower median: on GPUs, `nanmedian` has no deterministic algorithm
        own = found.nanquantile(0.5, dim=1, keepdim=True, interpolation="lower")
        apart = own.where(own.isfinite(), own.nanmean()).nan_to_num(0)  # copies of one
        if self._are_lone:
            self._apart = apart
        return apart
