"""Diversity guidance as a diffusers callback.

`VendiGuidance` has the settings and the memory. The life of one pipeline call in it:

    on, attached, begin    start a `Call`, which watches the scheduler and the network
    guide                  after each step; the `Call` decides whether to change the latents
    guide, at the end      finished samples enter the memory, and the `Call` is closed

The pipeline's own code stays as it is.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from diffusers.callbacks import PipelineCallback
from diffusers.configuration_utils import FrozenDict
from torch import Tensor
from torch.nn import Module

from vendi_guidance.adapter.call import Call
from vendi_guidance.adapter.calling import (
    Callback,
    arguments,
    check_pipeline,
    count_steps,
    is_finished,
)
from vendi_guidance.adapter.prompts import prompt_inputs
from vendi_guidance.adapter.undistilled import AUTO, Undistilled, check_undistilled
from vendi_guidance.guidance.memory import Memory, check_lasting
from vendi_guidance.guidance.settings import (
    NOT_GIVEN,
    Published,
    Rounds,
    Settings,
    describe,
    dial,
    settings_of,
    show_settings,
)
from vendi_guidance.guidance.step import Generator, Step
from vendi_guidance.guidance.window import WINDOW, SlidingWindow

logger = logging.getLogger(__name__)


class VendiGuidance(PipelineCallback):
    """Makes what a diffusers pipeline generates more diverse, for the prompts asked.

    Pass it to any pipeline that takes `callback_on_step_end`, and to every call that should know of
    the earlier ones; see `on`. The samples of a call are guided together, against the window and
    against one another. They enter the window after their last step. Latents keep their norm.

    The first argument may be the settings of one of the two algorithms, `Rounds(...)`, the default,
    or `Published(...)`. Their fields are keyword arguments too; one that only a single algorithm
    has selects that algorithm.

    At strength 0 it does nothing and remembers nothing, unless `record` is set. Otherwise what is
    remembered changes what follows: the same seed gives another image in a later call, unless
    `memory="call"`.

    Args:
        strength (default 0.5): The dial, from 0, the stock pipeline bit for bit, to 1, the most
            variety. It sets {dialled}.
        memory (default session): "session" remembers finished samples from call to call. "call"
            remembers none: a call's samples are guided by one another and by what the window holds.
        window (default 300): How many finished samples to remember, or a `SlidingWindow`.
        preset (default None): "published", the paper's settings, in place of a strength.
        exemplars (default None): (n, ...) finished latents, or features of another `space`, that
            samples need not move away from; `exemplar_features` makes them of images.
        prompt_input (default None): The name of the pipeline's tensor that tells prompts apart,
            such as SDXL's pooled "add_text_embeds"; its rows are remembered whatever the objective.
            None is, for a conditional objective, the best that the pipeline offers (with `on`) or
            "prompt_embeds" (without).
        record (default False): Let samples enter the window at strength 0 too.
        undistilled (default auto): The network that predicts in the rounds. One distilled to few
            steps hardly follows them. "adapters" is the pipeline's network with its LoRAs
            (Lightning, Turbo, Hyper, LCM, ...) switched off during the rounds; a module is the
            network that the pipeline's was distilled from: of the same class, on the same device.
            None is the pipeline's own. "auto" is "adapters" in calls of up to 9 steps without CFG
            if the first prediction shows that LoRAs are what distilled the network, else None.
            While LoRAs may be off, other threads wait for the network.
        {settings}

    Attributes:
        settings: `Settings`, as given above.
        memory: a `Memory`: the window, the exemplars and the prompt bandwidth that was found.
        keeps: the argument `memory`, a word; it may be changed between calls.
        record, undistilled: as given above; they may be replaced between calls.

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
        undistilled: Undistilled = AUTO,
        **settings: Any,
    ) -> None:
        # PipelineCallback's own __init__ is left out: it sets when a callback stops
        check_lasting(memory)
        check_undistilled(undistilled)
        self.memory = Memory(window, exemplars)
        self.keeps = memory
        self.record = record
        self.undistilled = undistilled
        self._prompt_input = prompt_input
        settings |= {"strength": strength, "scale": scale, "every": every}
        self.settings = settings_of(objective, preset, **settings)
        self._call: Call | None = None
        self._has_warned = False

    @property
    def _internal_dict(self) -> FrozenDict:
        """diffusers' configuration, from which `from_config` makes the same guidance again; where
        there is a space or a network of one's own, `from_config` refuses its name."""
        space, other = self.settings.space, self.undistilled
        others = {"memory": self.keeps, "window": self.window.size, "record": self.record}
        others |= {"space": space if isinstance(space, str) else repr(space)}
        others |= {"undistilled": type(other).__name__ if isinstance(other, Module) else other}
        return FrozenDict(vars(self.settings), **others, prompt_input=self._prompt_input)

    def register_to_config(self, **_: Any) -> None:
        """Nothing is stored: the configuration follows what may change between calls."""

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
        """Those that the call under way began with, or else those of the next call."""
        return self.settings if self._call is None else self._call.settings

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
            generator: of fresh noise in this call, or one for each sample. None is that of the
                pipeline's call; where that has none, torch's own governs, as in the stock pipeline.
            callback: a callback of your own, called after each guided step with guided latents;
                what it returns holds. For PixArt, one that takes (step, timestep, latents).
            callback_tensor_inputs: what would be `callback_on_step_end_tensor_inputs`.

        Raises:
            TypeError: `pipeline` is no pipeline.
            ValueError: the pipeline takes no callback, or the settings need what it or its
                scheduler do not offer.
        """
        check_pipeline(pipeline)
        self.begin(pipeline, generator)
        names = self.tensor_inputs
        if self.prompt_input is not None and self._prompt_input is None:
            names = ["latents", *prompt_inputs(pipeline)]
        return arguments(pipeline, self.callback_fn, names, callback, callback_tensor_inputs)

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
        before = self.keeps, self.undistilled, self.settings
        settings, inputs = self.settings.changed(**changes), callback_tensor_inputs
        try:
            self.keeps = self.keeps if memory is None else memory
            if undistilled is not NOT_GIVEN:
                self.undistilled = undistilled
            self.settings = settings
            # until the block ends, finished samples wait in a list
            with self.memory.holding() as finished:
                yield self.on(pipeline, generator, callback=callback, callback_tensor_inputs=inputs)
            if self._call is not None and not self._call.has_begun:
                self._warn_unguided(self._call, None)
            self.memory.commit(finished)
        finally:
            self._end()
            self.keeps, self.undistilled, self.settings = before

    def begin(self, pipeline: Any, generator: Generator = None) -> Call:
        """Start a call: watch the scheduler and the network of the pipeline from now on.

        `on` and `attached` do this. The callback alone does it at its first step, where it has
        missed the first prediction.
        """
        self._end()
        check_lasting(self.keeps)
        self._call = Call(pipeline, self.settings, self.memory, generator, self.undistilled)
        return self._call

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
        call = self._call
        if call is None or (step_index == 0 and call.has_begun):  # the pipeline is called anew
            call = self.begin(pipeline)
        call.has_begun = True
        if call.settings.scale == 0 and not self.record:
            if step_index >= count - 1:
                self._end()
            return callback_kwargs
        scheduled = getattr(pipeline.scheduler, "num_inference_steps", None) or 0
        step = Step(step_index, count, callback_kwargs["latents"], pipeline, scheduled=scheduled)
        is_due = call.observe(step)
        is_kept = step.is_last and self.keeps == "session" and is_finished(pipeline)
        if not (is_due or step.is_last):
            return callback_kwargs
        if self.prompt_input is not None and (is_due or is_kept):
            step = call.with_prompts(step, callback_kwargs, self._prompt_input)
        if is_due:
            step = call.modify(step)
        if step.is_last:
            self._warn_unguided(call, step)
            if is_kept:
                call.engine.remember(step)
            self._end()
        return {**callback_kwargs, "latents": step.latents}

    def _end(self) -> None:
        """End the call under way, if there is one."""
        if self._call is not None:
            self._call.close()
        self._call = None

    def _warn_unguided(self, call: Call, last: Step | None) -> None:
        reason = call.why_unguided(last)
        if reason is not None and not self._has_warned:
            self._has_warned = True
            logger.warning("no step of this call was guided: %s", reason)


# the signature and the docstring list each field of `Rounds` and `Published`
show_settings(VendiGuidance.__init__)
VendiGuidance.__doc__ = (VendiGuidance.__doc__ or "").format(
    settings=describe().strip(), dialled=", ".join(f"`{name}`" for name in dial(1))
)
