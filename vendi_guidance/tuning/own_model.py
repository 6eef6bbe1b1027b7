"""A faithfulness judge that needs no other weights: the model that generates the images.

A diffusion model is a zero-shot classifier of prompts (Li et al., ICCV 2023): the prompt of an
image is the one with which the network denoises it with the smallest error. This works for every
look that the model knows, including those that its unguided images never show.
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
"""Denoising steps per call. The first starts from pure noise, so only the others are scored."""

ALTERNATIVES = 4
"""Maximum number of other prompts to compare an image's prompt with."""


class OwnModel:
    """Scores an image 1 if its prompt has the smallest denoising error of all compared, else 0.

    Each image takes `STEPS` network evaluations for each prompt compared.

    Args:
        runs: runs of the model, which is loaded on first use.
        prompts: of the runs. An image's prompt is compared with those that follow it, or with the
            empty prompt if it is the only one.
    """

    def __init__(self, runs: Sweep, prompts: Sequence[str]) -> None:
        self.name = "own prompt recognised by the model"
        self._runs = runs
        self._prompts = list(dict.fromkeys(prompts))

    def __call__(self, images: Sequence[Image], prompts: Sequence[str]) -> Tensor:
        candidates = [[prompt, *self.alternatives(prompt)] for prompt in prompts]
        rows = 2 * self._runs.options.batch_size  # of the network with CFG
        size = max(1, rows // len(candidates[0]))
        best = []
        for start in range(0, len(images), size):
            errors = self.errors(images[start : start + size], candidates[start : start + size])
            best.append(errors.argmin(dim=1))
        return (torch.cat(best) == 0).double().cpu()

    def alternatives(self, prompt: str) -> list[str]:
        """The prompts to compare a prompt with, equally many for each prompt."""
        start = self._prompts.index(prompt)
        others = self._prompts[start + 1 :] + self._prompts[:start]
        return others[:ALTERNATIVES] or [""]

    @torch.no_grad()
    def errors(self, images: Sequence[Image], candidates: Sequence[Sequence[str]]) -> Tensor:
        """(n, k) mean squared errors of the predicted noise, for n images with k prompts each.

        Raises:
            ValueError: the pipeline has no VAE, or a scheduler whose predictions cannot be read.
        """
        pipe, sampling = self._runs.pipe, self._runs.model.sampling
        k = len(candidates[0])
        with frozen(pipe.vae):
            clean = encode(pipe, _pixels(images)).float().repeat_interleave(k, dim=0)
        # the same noise for all images and prompts, so that only they differ
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(clean.shape[1:], generator=generator).to(clean)
        total = torch.zeros(len(clean), device=clean.device)

        def follow(step: int, latents: Tensor) -> Tensor:
            """Add up the errors of a step; returns the noised images as latents of the next."""
            before, after = watch.levels
            if step:
                error = watch.prediction.denoised.to(clean) - clean
                total.add_(error.flatten(1).square().mean(1) * (before.signal / before.noise) ** 2)
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
        prompts = [prompt for of_image in candidates for prompt in of_image]
        pipe.guidance = VendiGuidance(diversity=0)
        with Watch(pipe.scheduler) as watch:
            call = sampling.arguments(prompts) | given | {"num_inference_steps": STEPS}
            call.pop("negative_prompt", None)
            generators = [torch.Generator().manual_seed(0) for _ in prompts]
            pipe(generator=generators, output_type="latent", **call)
        return total.view(-1, k)


def _pixels(images: Sequence[Image]) -> Tensor:
    """Images as a tensor, (n, 3, h, w) in [-1, 1]."""
    arrays = np.stack([np.asarray(image.convert("RGB")) for image in images])
    return torch.from_numpy(arrays).movedim(-1, 1) / 127.5 - 1
