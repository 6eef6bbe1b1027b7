"""Diversity guidance as a diffusers callback.

Every few denoising steps, each latent in flight moves a little towards a higher diversity score of
everything generated so far (Jalali et al., AISTATS 2026, equation (14)); a finished sample enters
the window. The pipeline's own code stays as it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from diffusers.callbacks import PipelineCallback
from torch import Tensor

from vendi_guidance.guidance.call import Call
from vendi_guidance.guidance.classifier_free import DelayedCFG
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.prompts import (
    is_pooled_clip,
    prompt_features,
    prompt_inputs,
    why_no_prompts,
)
from vendi_guidance.guidance.settings import (
    NOT_GIVEN,
    PRESETS,
    SIGMA_PROMPT,
    Settings,
    describe,
    show_settings,
)
from vendi_guidance.guidance.step import Generator, Step
from vendi_guidance.guidance.window import SlidingWindow


class VendiGuidance(PipelineCallback):
    """Makes what a diffusers pipeline generates more diverse, for the prompts asked.

    Pass it to any pipeline that takes `callback_on_step_end`, and to every call that should know of
    the earlier ones; see `on`. The b samples of a call are guided together, against the window and
    against one another. They enter the window after their last step. Latents keep their norm.

    With `scale=0` it does nothing and remembers nothing, unless `record` is set. Otherwise what is
    remembered changes what follows: the same seed gives another image in a later call.
    `guidance.window.clear()` makes the next call independent of all earlier ones.

    Args:
        window (default 300): How many finished samples to remember, or a `SlidingWindow`.
        preset (default standard): Where the settings that are not given come from: "standard",
            "varied" or "published", the paper's.
        exemplars (default None): (n, ...) finished latents, or features of another `space`, that
            samples need not move away from; `exemplar_features` makes them of images.
        prompt_input (default None): The pipeline's tensor that tells prompts apart, remembered
            whatever the objective; for SDXL the pooled "add_text_embeds" does so best. None is,
            for a conditional objective, the best that the pipeline offers (with `on`) or
            "prompt_embeds" (without).
        record (default False): Let samples enter the window at scale 0 too.
        {settings}

    Attributes:
        settings: `Settings`, as given above.
        memory: the window, the exemplars and the prompt bandwidth that was found.
        generator: of fresh noise: a `torch.Generator`, one for each sample, or None.

    Raises:
        ValueError: a value out of its range, named in the message.
        TypeError: a setting that does not exist.

    Example:
        >>> from vendi_guidance import VendiGuidance
        >>> guidance = VendiGuidance(preset="published", every=5)
        >>> guidance.settings.scale, guidance.settings.every, len(guidance.window)
        (0.03, 5, 0)
    """

    def __init__(
        self,
        objective: str = NOT_GIVEN,
        scale: float = NOT_GIVEN,
        every: int = NOT_GIVEN,
        window: int | SlidingWindow = 300,
        *,
        preset: str = "standard",
        exemplars: Tensor | None = None,
        prompt_input: str | None = None,
        record: bool = False,
        **settings: Any,
    ) -> None:
        # without PipelineCallback's own arguments, which say when a callback stops
        settings |= {"objective": objective, "scale": scale, "every": every}
        self.settings = PRESETS["standard"].changed(preset, **settings)
        self.memory = Memory(window, exemplars)
        self.generator: Generator = None
        self.record = record
        self._prompt_input = prompt_input
        self._cfg = DelayedCFG()
        self._call: Call | None = None

    @property
    def settings(self) -> Settings:
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._settings = settings
        plain = (int, float, str, type(None))
        config = {k: v if isinstance(v, plain) else repr(v) for k, v in vars(settings).items()}
        self.register_to_config(**config)

    def __repr__(self) -> str:
        settings = (f"{name}={value!r}" for name, value in vars(self.settings).items())
        return f"VendiGuidance({', '.join(settings)}, window={self.window})"

    @property
    def window(self) -> SlidingWindow:
        """The remembered samples."""
        return self.memory.window

    @property
    def skipped(self) -> int:
        """How many guidance steps of single samples were skipped, and samples not remembered, for
        NaN or infinity. A broken sample costs the rest of its batch that step too."""
        return self.memory.skipped

    @property
    def sigma_prompt(self) -> float | None:
        """The prompt bandwidth given, or found and fixed; None if it is still to be found."""
        return self._settings_now.sigma_prompt or self.memory.sigma_prompt

    @property
    def tensor_inputs(self) -> list[str]:
        """The tensors that diffusers hands to the callback."""
        return ["latents"] if self.prompt_input is None else ["latents", self.prompt_input]

    @property
    def prompt_input(self) -> str | None:
        """The tensor that tells prompts apart, or None if prompts are not compared."""
        is_conditional = self._settings_now.is_conditional
        return self._prompt_input or ("prompt_embeds" if is_conditional else None)

    @property
    def _settings_now(self) -> Settings:
        return self.settings if self._call is None else self._call.settings

    def on(
        self, pipeline: Any, generator: Generator = None, guidance_scale: float | None = None
    ) -> dict[str, Any]:
        """The arguments that guide one call of a pipeline: `pipe(prompts, **guidance.on(pipe))`.

        They ask for the best prompt embeddings that this pipeline offers. `callback_on_step_end=
        guidance` can only ask for what nearly every pipeline has, and misses the first prediction.

        Args:
            pipeline: the one that will be called.
            generator: what it will be called with, for fresh noise to come from.
            guidance_scale: of CFG; give it here instead of to the pipeline if CFG begins late.

        Raises:
            ValueError: the settings need what this pipeline or its scheduler do not offer.
        """
        return self._attach(pipeline, self.settings, generator, guidance_scale)

    @contextmanager
    def attached(
        self,
        pipeline: Any,
        generator: Generator = None,
        guidance_scale: float | None = None,
        **changes: Any,
    ) -> Iterator[dict[str, Any]]:
        """`on`, with other settings for this call, and a window that stays as it was if it raises:
        `with guidance.attached(pipe, preset="varied") as given: pipe(prompts, **given)`."""
        settings = self.settings.changed(**changes)
        try:
            with self.memory.holding() as finished:
                yield self._attach(pipeline, settings, generator, guidance_scale)
            self.memory.commit(finished)
        finally:
            self._let_go()
            self.generator = None

    def callback_fn(
        self,
        pipeline: Any,
        step_index: int,
        timesteps: Any,
        callback_kwargs: dict[str, Any],
    ) -> dict[str, Any]:
        """What diffusers calls after each step; see `diffusers.callbacks.PipelineCallback`."""
        call, settings = self._call, self._settings_now
        if settings.scale == 0 and not self.record:
            return callback_kwargs
        if call is None or (step_index == 0 and call.has_begun):
            call = self._begin(pipeline, settings, self.generator)
        step = Step(pipeline, step_index, callback_kwargs["latents"])
        due = call.due(step)
        if not (due or step.is_last):
            return callback_kwargs
        if self.prompt_input is not None:
            step = replace(step, prompts=self._prompt_features(pipeline, callback_kwargs))
        if due:
            step = call.with_prediction(step)
        for modify in due:
            step = modify(step, self.memory)
        if step.is_last:
            features = settings.build_space().remember(pipeline, step.latents)
            self.memory.add(features, step.prompts)
            self._let_go()
        return {**callback_kwargs, "latents": step.latents}

    def _attach(
        self, pipeline: Any, settings: Settings, generator: Generator, guidance_scale: float | None
    ) -> dict[str, Any]:
        call = self._begin(pipeline, settings, generator)
        names = self.tensor_inputs
        if self.prompt_input is not None and self._prompt_input is None:
            names = ["latents", *prompt_inputs(pipeline)]
        arguments: dict[str, Any] = {
            "callback_on_step_end": self.callback_fn,
            "callback_on_step_end_tensor_inputs": names,
        }
        if guidance_scale is not None:
            first = self._cfg.first(guidance_scale) if call.delays_cfg else guidance_scale
            arguments["guidance_scale"] = first
        return arguments

    def _begin(self, pipeline: Any, settings: Settings, generator: Generator) -> Call:
        self._let_go()
        self.generator = generator
        self._call = Call(pipeline, settings, generator, self._cfg)
        return self._call

    def _let_go(self) -> None:
        if self._call is not None:
            self._call.close()
        self._call = None

    def _prompt_features(self, pipeline: Any, tensors: dict[str, Any]) -> Tensor:
        features = prompt_features(pipeline, tensors, self._prompt_input)
        if features is None:
            raise ValueError(f"the objective compares prompts: {why_no_prompts(pipeline)}")
        if not self.sigma_prompt and is_pooled_clip(pipeline, tensors, self._prompt_input):
            self.memory.sigma_prompt = SIGMA_PROMPT
        return features


show_settings(VendiGuidance.__init__)
VendiGuidance.__doc__ = (VendiGuidance.__doc__ or "").format(settings=describe().strip())
