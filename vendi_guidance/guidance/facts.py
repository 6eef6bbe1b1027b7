"""What is known of a call when it is decided how the call is guided.

Noise levels are ratios of noise to signal: infinite for pure noise, 0 for a clean image.
"""

from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from vendi_guidance.guidance.noise import Noise
from vendi_guidance.guidance.samples import lengths
from vendi_guidance.guidance.score import SAME, Score, between
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Denoiser, Step

FEW = 9
"""A call without CFG of up to this many steps is taken to use a distilled network: Z-Image Turbo
takes 9. With CFG, joint networks make rounds in such short calls."""


@dataclass(frozen=True)
class Facts:
    """The facts of one call, found once, at its first step that is seen."""

    steps: int
    scheduled: int  # steps of the schedule, of which image-to-image calls make the last ones
    start: float  # the noise-to-signal ratio at which the first step begins
    evaluations: float  # per step of the stock call: 1, or 2 with classifier-free guidance (CFG)
    # the ratio where looks are decided: `Rounds.level` x sqrt(D), for latents of D numbers, since
    # the noise that hides an image grows with its size
    wanted: float
    images: int  # in flight
    remembered: int  # finished images in the window
    is_joint: bool  # this and the next: see `Denoiser`
    has_prompt: bool
    has_fixed_end: bool  # see `Step`
    is_continued: bool  # whether an earlier run of a sampler began the images
    score: Score = field(repr=False)  # what guidance raises
    step: Step = field(repr=False)

    @classmethod
    def of(cls, step: Step, score: Score, settings: Rounds, is_continued: bool = False) -> "Facts":
        """The facts at a step with its `network`; RuntimeError if it has none."""
        network = network_of(step)
        return cls(
            steps=step.count,
            scheduled=max(step.count, step.scheduled),
            start=network.levels[0].ratio,
            evaluations=network.evaluations_per_step,
            wanted=settings.level * step.latents[0].numel() ** 0.5,
            images=len(step.latents),
            remembered=len(score.window) + (len(score.exemplars) if score.exemplars else 0),
            is_joint=network.is_joint,
            has_prompt=network.has_prompt,
            has_fixed_end=step.has_fixed_end,
            is_continued=is_continued,
            score=score,
            step=step,
        )

    def __str__(self) -> str:
        """What was known, as lines of text."""
        cfg = "with CFG" if self.has_cfg else "without CFG"
        network = ["joint" if self.is_joint else "not joint"]
        network += ["takes a prompt's tokens"] * self.has_prompt
        if self.is_distilled and self.is_undistilled:
            network.append("the undistilled one answers")
        seen = f", first predictions differ by {self.spread:.2g} of their norm"
        lines = {
            "steps": f"{self.steps} of {self.scheduled}, {cfg}",
            "noise to signal": f"from {self.start:.3g}; looks are decided near {self.wanted:.3g}",
            "images": f"{self.images}, {self.remembered} remembered{seen * (not self.are_lone)}",
            "network": ", ".join(network),
        }
        return "\n".join(f"  {name}: {text}" for name, text in lines.items())

    @property
    def has_cfg(self) -> bool:
        """Whether the stock call has CFG, at half of its steps or more: some samplers have it at a
        few steps only."""
        return self.evaluations >= 1.5

    @property
    def is_distilled(self) -> bool:
        """Whether the network is taken to be distilled: few steps, without CFG."""
        return not self.has_cfg and self.scheduled <= FEW

    @cached_property
    def is_undistilled(self) -> bool:
        """Whether the network that this one was distilled from answers in its place: not after a
        call's last step, since what it predicts is blurred."""
        return network_of(self.step).settle(self.is_distilled and self.steps > 1)

    @cached_property
    def are_lone(self) -> bool:
        """Whether each image is its prompt's only one."""
        similarity = self.score.objective.similarity(self.step.prompts, self.step.latents.float())
        return bool((similarity > SAME).sum() == len(similarity))

    @cached_property
    def lone_distances(self) -> Tensor:
        """(b, 1) how far the prediction of another sample would be from each lone one's, as a share
        of its norm: one evaluation of the network tells, from other noise."""
        network = network_of(self.step)
        level, clean = network.levels[0], network.denoised
        noise = level.noise * Noise(self.step.first_latents).like(clean)
        return lengths(network.denoise(noise, level) - clean) / lengths(clean)

    @cached_property
    def spread(self) -> float:
        """How far first predictions of clean latents, without CFG, are from one another, as a share
        of their norm: the mean of `distances`."""
        return float(self.distances(self.step).nanmean())

    def distances(self, step: Step) -> Tensor:
        """(b, 1) the median distance of each sample's prediction to the others' for its prompt, as
        a share of its norm; where it is its prompt's only one, the mean of the other samples, or
        `lone_distances` where all are."""
        if self.are_lone and len(step.latents) == self.images:
            return self.lone_distances
        clean = network_of(step).denoised
        similarity = self.score.objective.similarity(step.prompts, clean)
        found = between(clean, similarity) / lengths(clean)
        # the lower median: on GPUs, `nanmedian` has no deterministic algorithm
        own = found.nanquantile(0.5, dim=1, keepdim=True, interpolation="lower")
        return own.where(own.isfinite(), own.nanmean()).nan_to_num(0)  # copies of one


def predicted_at(step: Step) -> Tensor:
    """(b, ...) clean latents that the step went on from: with CFG, if they are known with it."""
    return network_of(step).denoised if step.prediction is None else step.prediction.denoised


def network_of(step: Step) -> Denoiser:
    """The step's network; RuntimeError if it has none."""
    if step.network is None:
        raise RuntimeError("rounds need the network")
    return step.network
