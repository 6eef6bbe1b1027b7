"""Guidance as published: gradient ascent of a diversity score on each latent's sphere.

Jalali et al. (AISTATS 2026), equation (14): at every N-th denoising step,

    z <- z + eta grad_z Score(z_1..n | t_1..n),

with the gradient of each sample rescaled to the length eta |z| and the norm of z kept.
"""

from dataclasses import replace

from vendi_guidance.guidance.score import Score
from vendi_guidance.guidance.settings import Published
from vendi_guidance.guidance.step import Step


def ascend(step: Step, score: Score, settings: Published) -> Step:
    """The step with its latents moved towards a higher score."""
    moved = score.move(step.latents, score.gradient(step), settings.scale)
    return replace(step, latents=moved)
