"""A judge without weights of its own: the model that generates.

A diffusion model is a classifier of prompts (Li et al., ICCV 2023): of several prompts, an image's
own is the one with which the network removes noise from it best. That holds for every look that the
model knows, also for those that its unguided images never show.
"""

from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from vendi_guidance.adapter.callback import VendiGuidance
from vendi_guidance.adapter.families import family_of
from vendi_guidance.adapter.schedule import Watch, continue_from_here
from vendi_guidance.adapter.vae import encode, frozen
from vendi_guidance.runs.sweep import Sweep

STEPS = 4
"""Of each call; all but the first, whose latents are noise alone, predict the noised image."""

ALTERNATIVES = 4
"""Prompts that an image's own one is compared with, at most."""


class OwnModel:
    """1 for an image that the model recognises as its own prompt's, else 0.

    It costs an image `STEPS` evaluations of the network for each prompt compared.

    Args:
        runs: with the model, which is loaded on use.
        prompts: of the runs; an image's alternatives are those that follow its own, or the empty
            prompt where there is but one.
    """

    def __init__(self, runs: Sweep, prompts: Sequence[str]) -> None:
        self.name = "own prompt recognised by the model"
        self._runs = runs
        self._prompts = list(dict.fromkeys(prompts))

    def __call__(self, images: Sequence[Image], prompts: Sequence[str]) -> Tensor:
        asked = [[prompt, *self.alternatives(prompt)] for prompt in prompts]
        size = max(1, 2 * self._runs.options.batch_size // len(asked[0]))  # as many rows as CFG has
        best = []
        for start in range(0, len(images), size):
            errors = self.errors(images[start : start + size], asked[start : start + size])
            best.append(errors.argmin(dim=1))
        return (torch.cat(best) == 0).double().cpu()

    def alternatives(self, prompt: str) -> list[str]:
        """What a prompt is compared with: as many for each."""
        known, count = self._prompts, min(ALTERNATIVES, len(self._prompts) - 1)
        place = known.index(prompt)
        return [known[(place + i) % len(known)] for i in range(1, count + 1)] or [""]

    @torch.no_grad()
    def errors(self, images: Sequence[Image], asked: Sequence[Sequence[str]]) -> Tensor:
        """(n, k) mean squared errors of the noise predicted for n images with k prompts each.

        Raises:
            ValueError: the pipeline has no VAE, or its scheduler's predictions are not known.
        """
        pipe, sampling = self._runs.pipe, self._runs.model.sampling
        k = len(asked[0])
        with frozen(pipe.vae):
            clean = encode(pipe, _pixels(images)).float().repeat_interleave(k, dim=0)
        # one noise for all: prompts and images are compared with the same
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(clean.shape[1:], generator=generator).to(clean)
        total = torch.zeros(len(clean), device=clean.device)

        def follow(step: int, latents: Tensor) -> Tensor:
            """Add the errors of a step, and the latents of the next."""
            before, after = watch.levels
            if step:
                found = watch.prediction.denoised.to(clean) - clean
                total.add_(found.flatten(1).square().mean(1) * (before.signal / before.noise) ** 2)
            if not after.noise:
                return latents
            continue_from_here(pipe.scheduler)
            return after.mix(clean, noise).to(latents)

        def by_callback(_pipe: Any, step: int, _time: Any, tensors: dict[str, Any]) -> Any:
            return {"latents": follow(step, tensors["latents"])}

        def in_place(step: int, _time: Any, latents: Tensor) -> None:
            latents.copy_(follow(step, latents))

        given: dict[str, Any] = {"callback_on_step_end": by_callback}
        if "callback_on_step_end" not in signature(pipe.__call__).parameters:
            given = {"callback": in_place}
        if sampling.guidance_scale is not None:
            given[sampling.scale_name] = min(sampling.guidance_scale, family_of(pipe).no_cfg)
        prompts = [prompt for of_image in asked for prompt in of_image]
        pipe.guidance = VendiGuidance(strength=0)
        with Watch(pipe.scheduler) as watch:
            call = sampling.arguments(prompts) | given | {"num_inference_steps": STEPS}
            call.pop("negative_prompt", None)
            generators = [torch.Generator().manual_seed(0) for _ in prompts]
            pipe(generator=generators, output_type="latent", **call)
        return total.view(-1, k)


def _pixels(images: Sequence[Image]) -> Tensor:
    """(n, 3, h, w) in [-1, 1]."""
    arrays = np.stack([np.asarray(image.convert("RGB")) for image in images])
    return torch.from_numpy(arrays).movedim(-1, 1) / 127.5 - 1
