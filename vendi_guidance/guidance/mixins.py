"""What the guided pipelines have in common: `diversity_*` arguments around a stock pipeline's call.

A guided pipeline is a class with one of the two mixins below as its first base, the stock pipeline
as its second, and the stock pipeline again as `stock`.
"""

import copy
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from diffusers import DiffusionPipeline
from torch import Tensor

from vendi_guidance.guidance.callback import ThenCallback, VendiGuidance
from vendi_guidance.guidance.spaces import Space


class DiversityGuided:
    """A pipeline whose calls take `diversity_*` arguments; with `diversity_scale=0` a stock one."""

    stock: ClassVar[type[DiffusionPipeline]]
    prompt_input: ClassVar[str]
    """See `VendiGuidance`."""

    scheduler: Any

    @property
    def guidance(self) -> VendiGuidance:
        """The guidance, its window kept from call to call; assign another one to replace it."""
        if not hasattr(self, "_guidance"):
            self._guidance = VendiGuidance(prompt_input=self.prompt_input)
        return self._guidance

    @guidance.setter
    def guidance(self, guidance: VendiGuidance) -> None:
        self._guidance = guidance

    def __call__(
        self,
        *args: Any,
        diversity_preset: str | None = None,
        diversity_scale: float | None = None,
        diversity_objective: str | None = None,
        diversity_every: int | None = None,
        diversity_window: int | None = None,
        diversity_start: float | None = None,
        diversity_stop: float | None = None,
        diversity_schedule: str | Callable[[float], float] | None = None,
        diversity_step_rule: str | None = None,
        diversity_space: str | Space | None = None,
        diversity_center: str | None = None,
        diversity_renoise_start: float | None = None,
        diversity_renoise_stop: float | None = None,
        diversity_renoise_shrink: float | None = None,
        diversity_cfg_start: float | None = None,
        diversity_beta: float | None = None,
        diversity_sigma_latent: float | None = None,
        diversity_sigma_prompt: float | None = None,
        diversity_truncation: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Generate as the stock pipeline does, whose arguments all hold.

        A callback of yours is called after guidance, with guided latents. If the call raises, the
        window stays as it was.

        Args:
            diversity_*: as the arguments of `VendiGuidance`, for this call; None is what
                `self.guidance` has, or the preset if one is named (`diversity_window` resizes its
                window for good).

        Raises:
            ValueError: a value out of its range, named in the message.
            TypeError: a `diversity_` argument that does not exist.
        """
        changes = {
            "preset": diversity_preset,
            "scale": diversity_scale,
            "objective": diversity_objective,
            "every": diversity_every,
            "start": diversity_start,
            "stop": diversity_stop,
            "schedule": diversity_schedule,
            "step_rule": diversity_step_rule,
            "space": diversity_space,
            "center": diversity_center,
            "renoise_start": diversity_renoise_start,
            "renoise_stop": diversity_renoise_stop,
            "renoise_shrink": diversity_renoise_shrink,
            "cfg_start": diversity_cfg_start,
            "beta": diversity_beta,
            "sigma_latent": diversity_sigma_latent,
            "sigma_prompt": diversity_sigma_prompt,
            "truncation": diversity_truncation,
        }
        for name in kwargs:
            if name.startswith("diversity_"):  # stock pipelines may ignore what they do not know
                known = ", ".join(f"diversity_{known}" for known in [*changes, "window"])
                raise TypeError(f"{type(self).__name__} takes no {name!r}, only {known}")
        with self.guidance.one_call(self, kwargs.get("generator"), **changes):
            if diversity_window is not None:
                self.guidance.window.resize(diversity_window)
            return self._call_stock(*args, **kwargs)

    def _call_stock(self, *args: Any, **kwargs: Any) -> Any:
        """The stock pipeline's call, guided."""
        raise NotImplementedError

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs: Any) -> None:
        """Save as the stock pipeline, so that anyone can load it, with or without this package."""
        stock: Any = copy.copy(self)  # `from_pipe` would turn the weights into single precision
        stock.__class__ = self.stock
        stock.save_pretrained(save_directory, **kwargs)


class GuidedByCallback(DiversityGuided):
    """For pipelines that take `callback_on_step_end`."""

    def _call_stock(
        self,
        *args: Any,
        callback_on_step_end: Callable[..., dict[str, Any] | None] | None = None,
        callback_on_step_end_tensor_inputs: Sequence[str] = ("latents",),
        **kwargs: Any,
    ) -> Any:
        call = inspect.signature(self.stock.__call__).bind(self, *args, **kwargs)
        call.apply_defaults()
        given = call.arguments
        guided = self.guidance.on(self, given["generator"], given["guidance_scale"])
        if callback_on_step_end is not None:
            inputs = callback_on_step_end_tensor_inputs
            both = ThenCallback(self.guidance, callback_on_step_end, inputs)
            asked = [*guided["callback_on_step_end_tensor_inputs"], *both.tensor_inputs]
            guided |= {
                "callback_on_step_end": both.callback_fn,
                "callback_on_step_end_tensor_inputs": list(dict.fromkeys(asked)),
            }
        given.update(guided)
        return self.stock.__call__(*call.args, **call.kwargs)


class GuidedInPlace(DiversityGuided):
    """For the two PixArt, which have only the older `callback` and do not use what it returns."""

    prompt_input = "prompt_embeds"
    _prompts: dict[str, Tensor]

    @property
    def num_timesteps(self) -> int:
        """How many steps `callback` counts: two evaluations of the network are one, if the
        scheduler is of order 2."""
        return -(-len(self.scheduler.timesteps) // self.scheduler.order)

    def encode_prompt(self, *args: Any, **kwargs: Any) -> tuple[Tensor | None, ...]:
        """As the stock pipeline's."""
        encoded = self.stock.encode_prompt(self, *args, **kwargs)
        # negative prompts are left out: only pictures' own tell them apart
        self._prompts = {"prompt_embeds": encoded[0], "prompt_attention_mask": encoded[1]}
        return encoded

    def _call_stock(
        self,
        *args: Any,
        callback: Callable[[int, int, Tensor], None] | None = None,
        callback_steps: int = 1,
        **kwargs: Any,
    ) -> Any:
        if not isinstance(callback_steps, int) or callback_steps < 1:
            raise ValueError(
                f"callback_steps must be a whole number of at least 1, got {callback_steps!r}"
            )

        def each_step(step: int, timestep: int, latents: Tensor) -> None:
            tensors = {"latents": latents, **self._prompts}
            guided = self.guidance(self, step, timestep, tensors)["latents"]
            if guided is not latents:
                latents.copy_(guided)
            evaluations = min((step + 1) * self.scheduler.order, len(self.scheduler.timesteps))
            if callback is not None and (evaluations - 1) % callback_steps == 0:
                callback(step, timestep, latents)

        try:
            return self.stock.__call__(self, *args, callback=each_step, **kwargs)
        finally:
            self._prompts = {}
