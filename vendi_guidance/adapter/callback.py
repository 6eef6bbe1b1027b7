"""Diversity guidance as a diffusers callback.

While samples are denoised, each latent in flight moves towards a higher diversity score of
everything generated so far, in rounds at one noise level or as published (Jalali et al., AISTATS
2026, equation (14)); a finished sample enters the window. The pipeline's own code stays as it is.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from diffusers.callbacks import PipelineCallback
from torch import Tensor

from vendi_guidance.adapter.call import Call
from vendi_guidance.adapter.calling import (
    Callback,
    arguments,
    check_pipeline,
    count_steps,
    is_finished,
)
from vendi_guidance.adapter.prompts import prompt_inputs
from vendi_guidance.adapter.undistilled import Undistilled, check_undistilled
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import (
    NOT_GIVEN,
    Published,
    Rounds,
    Settings,
    describe,
    dial,
    show_settings,
)
from vendi_guidance.guidance.step import Generator, Step
from vendi_guidance.guidance.window import WINDOW, SlidingWindow

logger = logging.getLogger(__name__)

KEEPS = ("session", "call")
"""How long finished samples can be remembered."""


def check_keeps(memory: str) -> None:
    """Raise ValueError for what `VendiGuidance(memory=...)` may not be."""
    if memory not in KEEPS:
        raise ValueError(f"memory must be one of {', '.join(KEEPS)}, got {memory!r}")


def _settings(objective: str | Settings, preset: str | None, **changes: Any) -> Rounds | Published:
    """What the arguments of `VendiGuidance` ask for; the first may be the settings themselves."""
    if not isinstance(objective, Settings):
        return Rounds().changed(preset, objective=objective, **changes)
    if preset is not None:
        raise ValueError(f"preset {preset!r} has settings of its own, got {objective!r}")
    return objective.changed(**changes)


def _config(settings: Settings) -> dict[str, Any]:
    """The settings as diffusers stores them: a space of your own by its repr."""
    space = settings.space if isinstance(settings.space, str) else repr(settings.space)
    return {**vars(settings), "space": space}


class VendiGuidance(PipelineCallback):
    """Makes what a diffusers pipeline generates more diverse, for the prompts asked.

    Pass it to any pipeline that takes `callback_on_step_end`, and to every call that should know of
    the earlier ones; see `on`. The b samples of a call are guided together, against the window and
    against one another. They enter the window after their last step. Latents keep their norm.

    The first argument may be the settings of one of the two algorithms, `Rounds(...)`, the default,
    or `Published(...)`. Their fields are keyword arguments too; one that a single algorithm has
    picks that algorithm.

    At strength 0 it does nothing and remembers nothing, unless `record` is set. Otherwise what is
    remembered changes what follows: the same seed gives another image in a later call, unless
    `memory="call"`.

    Args:
        strength (default 0.5): The dial, from 0, the stock pipeline bit for bit, to 1, the most
            variety. It sets {dialled}.
        memory (default session): "session" remembers finished samples from call to call, "call"
            none: samples of a call are guided by one another, and by what the window already holds.
        window (default 300): How many finished samples to remember, or a `SlidingWindow`.
        preset (default None): "published", the paper's settings, in place of a strength.
        exemplars (default None): (n, ...) finished latents, or features of another `space`, that
            samples need not move away from; `exemplar_features` makes them of images.
        prompt_input (default None): The pipeline's tensor that tells prompts apart, remembered
            whatever the objective; for SDXL the pooled "add_text_embeds" does so best. None is,
            for a conditional objective, the best that the pipeline offers (with `on`) or
            "prompt_embeds" (without).
        record (default False): Let samples enter the window at strength 0 too.
        undistilled (default None): The network that predicts in the rounds, where the pipeline's is
            distilled to few steps and hardly follows them: "adapters" is the pipeline's without its
            LoRAs (Lightning, Turbo, Hyper, LCM, ...), which are off meanwhile; a module is one of
            the same class that the pipeline's was distilled from, on its device. None is the
            pipeline's own. While LoRAs are switched, calls of other threads on the same network
            take turns with this one.
        {settings}

    Attributes:
        settings: `Settings`, as given above.
        memory: the window, the exemplars and the prompt bandwidth that was found.
        undistilled: as given above; it may be replaced between calls.
        generator: of fresh noise: a `torch.Generator` or one for each sample. None is that of the
            pipeline's call; where that has none, torch's own governs, as in the stock pipeline.

    Raises:
        ValueError: a value out of its range, named in the message.
        TypeError: a setting that does not exist, or an `undistilled` that is no network.

    Example:
        >>> from vendi_guidance import Published, VendiGuidance
        >>> guidance = VendiGuidance(Published(every=5))
        >>> guidance.settings.scale, guidance.settings.every, len(guidance.window)
        (0.03, 5, 0)
    """

    def __init__(
        self,
        objective: str | Settings = NOT_GIVEN,
        scale: float = NOT_GIVEN,
        every: int = NOT_GIVEN,
        window: int | SlidingWindow = WINDOW,
        *,
        strength: float = NOT_GIVEN,
        memory: str = "session",
        preset: str | None = None,
        exemplars: Tensor | None = None,
        prompt_input: str | None = None,
        record: bool = False,
        undistilled: Undistilled = None,
        **settings: Any,
    ) -> None:
        # without PipelineCallback's own arguments, which say when a callback stops
        check_undistilled(undistilled)
        settings |= {"strength": strength, "scale": scale, "every": every}
        self.memory = Memory(window, exemplars)
        self.keeps = memory
        self.generator: Generator = None
        self.record = record
        self.undistilled = undistilled
        self._prompt_input = prompt_input
        self.settings = _settings(objective, preset, **settings)
        self._call: Call | None = None
        self._has_warned = False

    @property
    def settings(self) -> Rounds | Published:
        return self._settings

    @settings.setter
    def settings(self, settings: Rounds | Published) -> None:
        self._settings = settings
        kept = {"memory": self.keeps, "window": self.window.size, "record": self.record}
        self._internal_dict: Any = {}  # the other algorithm's settings do not stay
        self.register_to_config(**_config(settings), **kept, prompt_input=self._prompt_input)

    def __repr__(self) -> str:
        return f"VendiGuidance({self.settings!r}, window={self.window})"

    @property
    def window(self) -> SlidingWindow:
        """The remembered samples."""
        return self.memory.window

    @property
    def skipped(self) -> int:
        """How many guidance steps of single samples were skipped, and samples not remembered, for
        NaN or infinity. If one sample is NaN, the whole batch skips that step."""
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
    def _settings_now(self) -> Rounds | Published:
        return self.settings if self._call is None else self._call.settings

    @property
    def keeps(self) -> str:
        """ "session" or "call": how long finished samples are remembered."""
        return self._keeps

    @keeps.setter
    def keeps(self, keeps: str) -> None:
        check_keeps(keeps)
        self._keeps = keeps

    def on(
        self,
        pipeline: Any,
        generator: Generator = None,
        *,
        callback: Callback | None = None,
        callback_tensor_inputs: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """The arguments that guide one call of a pipeline: `pipe(prompts, **guidance.on(pipe))`.

        They ask for the best prompt embeddings that this pipeline offers. `callback_on_step_end=
        guidance` can only ask for what nearly every pipeline has, and does not see the first
        prediction.

        Args:
            pipeline: the one that will be called.
            generator: of fresh noise; None is the one that the pipeline is called with.
            callback: a callback of your own, called after each guided step with guided latents;
                what it returns holds. For PixArt, one that takes (step, timestep, latents).
            callback_tensor_inputs: what would be `callback_on_step_end_tensor_inputs`.

        Raises:
            TypeError: `pipeline` is no pipeline.
            ValueError: the pipeline takes no callback, or the settings need what it or its
                scheduler do not offer.
        """
        return self._attach(pipeline, self.settings, generator, callback, callback_tensor_inputs)

    @contextmanager
    def attached(
        self,
        pipeline: Any,
        generator: Generator = None,
        *,
        memory: str | None = None,
        undistilled: Undistilled = NOT_GIVEN,
        callback: Callback | None = None,
        callback_tensor_inputs: Sequence[str] | None = None,
        **changes: Any,
    ) -> Iterator[dict[str, Any]]:
        """`on`, with other settings for this call, and a window that stays as it was if it raises:
        `with guidance.attached(pipe, strength=0.8) as given: pipe(prompts, **given)`."""
        settings, before = self.settings.changed(**changes), (self.keeps, self.undistilled)
        inputs = callback_tensor_inputs
        try:
            self.keeps = self.keeps if memory is None else memory
            if undistilled is not NOT_GIVEN:
                self.undistilled = undistilled
            with self.memory.holding() as finished:
                yield self._attach(pipeline, settings, generator, callback, inputs)
            if self._call is not None and not self._call.has_begun:
                self._warn_unguided(self._call, None)
            self.memory.commit(finished)
        finally:
            self._let_go()
            self.generator, (self.keeps, self.undistilled) = None, before

    def callback_fn(
        self, pipeline: Any, step_index: int, timesteps: Any, callback_kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """What diffusers calls after each step; see `diffusers.callbacks.PipelineCallback`."""
        return self.guide(pipeline, step_index, count_steps(pipeline), callback_kwargs)

    def guide(
        self, pipeline: Any, step_index: int, count: int, callback_kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """The tensors after a step, with guided latents.

        Args:
            pipeline: with the scheduler and the network of the call.
            step_index: the step's number, from 0.
            count: how many steps the call has.
            callback_kwargs: "latents", and what tells prompts apart.
        """
        call, settings = self._call, self._settings_now
        if settings.scale == 0 and not self.record:
            return callback_kwargs
        if call is None or (step_index == 0 and call.has_begun):
            call = self._begin(pipeline, settings, self.generator)
        step = Step(step_index, count, callback_kwargs["latents"], pipeline)
        call.observe(step)
        is_due = call.is_due(step)
        if not (is_due or step.is_last):
            return callback_kwargs
        if self.prompt_input is not None:
            step = call.with_prompts(step, callback_kwargs, self._prompt_input)
        if is_due:
            step = call.modify(step)
        if step.is_last:
            self._warn_unguided(call, step)
            if self.keeps == "session" and is_finished(pipeline):
                call.remember(step)
            self._let_go()
        return {**callback_kwargs, "latents": step.latents}

    def begin(self, pipeline: Any, generator: Generator = None) -> None:
        """Watch the scheduler and the network of a pipeline, whose call is about to begin."""
        self._begin(pipeline, self.settings, generator)

    def _attach(
        self,
        pipeline: Any,
        settings: Rounds | Published,
        generator: Generator,
        callback: Callback | None,
        callback_inputs: Sequence[str] | None,
    ) -> dict[str, Any]:
        check_pipeline(pipeline)
        self._begin(pipeline, settings, generator)
        names = self.tensor_inputs
        if self.prompt_input is not None and self._prompt_input is None:
            names = ["latents", *prompt_inputs(pipeline)]
        return arguments(pipeline, self.callback_fn, names, callback, callback_inputs)

    def _begin(self, pipeline: Any, settings: Rounds | Published, generator: Generator) -> Call:
        self._let_go()
        self.generator = generator
        self._call = Call(pipeline, settings, self.memory, generator, self.undistilled)
        return self._call

    def _let_go(self) -> None:
        if self._call is not None:
            self._call.close()
        self._call = None

    def _warn_unguided(self, call: Call, last: Step | None) -> None:
        reason = call.why_unguided(last)
        if reason is not None and not self._has_warned:
            self._has_warned = True
            logger.warning("no step of this call was guided: %s", reason)


show_settings(VendiGuidance.__init__)
VendiGuidance.__doc__ = (VendiGuidance.__doc__ or "").format(
    settings=describe().strip(), dialled=", ".join(f"`{name}`" for name in dial(1))
)
