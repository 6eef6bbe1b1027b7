"""Diversity guidance as a diffusers callback: `on`, `attached` or `begin` creates a `Call`, which
lasts until its last step; settings and memory last from call to call."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from diffusers.callbacks import PipelineCallback
from torch import Tensor

from vendi_guidance.adapter.call import Call
from vendi_guidance.adapter.families import (
    check_attention,
    check_pipeline,
    count_steps,
    family_of,
    is_finished,
)
from vendi_guidance.adapter.prompts import prompt_inputs
from vendi_guidance.adapter.undistilled import AUTO, Undistilled, check_undistilled
from vendi_guidance.guidance.memory import Memory, check_lasting
from vendi_guidance.guidance.setting import describe, show_settings
from vendi_guidance.guidance.settings import SETTINGS, Published, Rounds, adjusted
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.window import WINDOW, SlidingWindow

logger = logging.getLogger(__name__)

Callback = Callable[..., dict[str, Any] | None]


class _ExplainedError(Exception):
    """Ends a call that was begun to explain it."""


class VendiGuidance(PipelineCallback):
    """Makes the images of a diffusers pipeline more diverse, given their prompts.

    It works with any pipeline that takes `callback_on_step_end`; see `on`. The samples of a call
    are guided together, away from one another and from the finished samples in the window. They
    enter the window after their last step. Guidance preserves the norm of latents. Pass the same
    object to each call that should take the earlier ones into account.

    There are two algorithms, `Rounds` and `Published`. The fields of their settings are keyword
    arguments too, which change the settings that are given.

    With `diversity=0` guidance does nothing and remembers nothing, unless `record` is set.
    Otherwise the remembered samples affect later calls, so that the same seed gives another image
    there, unless `memory="call"`.

    Args:
        settings (default None): `Rounds` or `Published` settings; None is `Rounds()`.
        memory (default session): "session" remembers finished samples from call to call. "call"
            adds none: samples move away from one another and from what the window already holds.
        window (default 300): How many finished samples to remember, or a `SlidingWindow`.
        preset (default None): "published", the paper's settings, `Published()`.
        exemplars (default None): (n, ...) finished latents, or features of another `space`, that
            samples need not move away from; `exemplar_features` computes them from images.
        prompt_input (default None): The name of the pipeline's tensor that identifies prompts, such
            as SDXL's pooled "add_text_embeds". If given, its rows are remembered whatever the
            objective. None, with a conditional objective: the best one that the pipeline offers
            (with `on`), or "prompt_embeds" (without).
        record (default False): Add samples to the window with `diversity=0` too.
        undistilled (default auto): The network that predicts in the rounds, because one distilled
            to few steps hardly follows them, and at the first step with classifier-free guidance
            (CFG), where one tuned on a taste would narrow what images show. "adapters": the
            pipeline's, with its LoRAs off. A module: what the pipeline's was distilled or tuned
            from, of the same class and on the same device. None: the pipeline's own. "auto":
            "adapters" in calls of up to 9 steps without CFG whose first prediction shows that LoRAs
            distilled the network, else None.
        {settings}

    Attributes:
        settings: the `Rounds` or `Published` settings.
        memory: the `Memory`, with the window, the exemplars and the estimated prompt bandwidth.
        keeps, record, undistilled: the arguments `memory`, `record` and `undistilled`, which may be
            changed between calls.

    Raises:
        ValueError: a value is out of range; the message names it.
        TypeError: a setting does not exist or belongs to the other algorithm.

    Example:
        >>> from vendi_guidance import Published, VendiGuidance
        >>> guidance = VendiGuidance(Published(every=5))
        >>> guidance.settings.scale, guidance.settings.every, len(guidance.window)
        (0.03, 5, 0)
    """

    def __init__(
        self,
        settings: Rounds | Published | None = None,
        window: int | SlidingWindow = WINDOW,
        *,
        memory: str = "session",
        preset: str | None = None,
        exemplars: Tensor | None = None,
        prompt_input: str | None = None,
        record: bool = False,
        undistilled: Undistilled = AUTO,
        **changes: Any,
    ) -> None:
        # PipelineCallback.__init__ is not called: it registers when a callback stops
        check_lasting(memory)
        check_undistilled(undistilled)
        self.memory = Memory(window, exemplars)
        self.keeps = memory
        self.record = record
        self.undistilled = undistilled
        self._prompt_input = prompt_input
        if settings is not None and preset is not None:
            raise ValueError(f"preset {preset!r} has settings of its own, got {settings!r}")
        self.settings = adjusted(Rounds() if settings is None else settings, changes, preset)
        self._call: Call | None = None
        self._has_warned = self._is_explaining = False

    def __repr__(self) -> str:
        return f"VendiGuidance({self.settings!r}, window={self.window})"

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy, also pickled: without the current call, which belongs to a pipeline."""
        return {**vars(self), "_call": None}

    @property
    def window(self) -> SlidingWindow:
        """The finished samples that are remembered."""
        return self.memory.window

    @property
    def skipped(self) -> int:
        """How many samples were not guided at a step, or not remembered, because of NaN or
        infinity. If one sample is NaN, the whole batch skips that step."""
        return self.memory.skipped

    @property
    def sigma_prompt(self) -> float | None:
        """The prompt bandwidth, as set or once it is fixed; None before that."""
        return self.settings.sigma_prompt or self.memory.sigma_prompt

    @property
    def tensor_inputs(self) -> list[str]:
        """The tensors that diffusers passes to the callback."""
        name = self._prompt_input or ("prompt_embeds" if self.settings.is_conditional else None)
        return ["latents"] if name is None else ["latents", name]

    def on(
        self,
        pipeline: Any,
        *,
        callback: Callback | None = None,
        callback_tensor_inputs: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Arguments that guide one call of a pipeline: `pipe(prompts, **guidance.on(pipe))`.

        They request the best prompt embeddings that this pipeline offers, and guidance sees the
        first prediction of the call. Without `on`, `pipe(prompts, callback_on_step_end=guidance)`
        gets only "prompt_embeds", and misses that prediction.

        Args:
            pipeline: the pipeline that will be called.
            callback: your own callback, called after each step with guided latents; the tensors
                that it returns are used. It may call other pipelines, with the same network too.
                For PixArt, it takes (step, timestep, latents).
            callback_tensor_inputs: your `callback_on_step_end_tensor_inputs`.

        Raises:
            TypeError: `pipeline` is not a pipeline.
            ValueError: the pipeline takes no callback, or it or its scheduler does not support the
                settings.
        """
        check_pipeline(pipeline, not self.settings.is_off)
        users = partial(self._call_users, callback)
        if family_of(pipeline).is_in_place:
            given = pipeline.in_place(self.callback_fn, users)
        else:
            inputs = getattr(callback, "tensor_inputs", callback_tensor_inputs)
            names = self.tensor_inputs
            if self._prompt_input is None and self.settings.is_conditional:
                names = ["latents", *prompt_inputs(pipeline)]
            given = self._returning(names, users, ["latents"] if inputs is None else inputs)
        [(argument, owner), *_] = given.items()
        self.begin(pipeline, owner).await_loop(pipeline, argument)
        return given

    def _returning(
        self, names: Sequence[str], users: Callback, inputs: Sequence[str]
    ) -> dict[str, Any]:
        """Arguments of a call whose callback gets `names` and returns guided tensors, then the
        user's, who gets `inputs`."""

        # diffusers' MultiPipelineCallbacks passes all tensors to each callback, not only its
        # inputs, and loses changes that a later callback does not return
        def both(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            if step == 0 and (self._call is None or not self._call.is_next_of(pipe)):
                logger.warning(
                    "the arguments of guidance.on(pipe) are for one call of that pipeline, and "
                    "guide this one without its first prediction: ask for new ones for each call"
                )
            guided = self.callback_fn(pipe, step, timestep, tensors)
            changes = users(pipe, step, timestep, {name: guided[name] for name in inputs})
            return {**guided, **(changes or {})}

        return {
            "callback_on_step_end": both,
            "callback_on_step_end_tensor_inputs": list(dict.fromkeys([*names, *inputs])),
        }

    @contextmanager
    def attached(
        self,
        pipeline: Any,
        *,
        preset: str | None = None,
        memory: str | None = None,
        callback: Callback | None = None,
        callback_tensor_inputs: Sequence[str] | None = None,
        **changes: Any,
    ) -> Iterator[dict[str, Any]]:
        """`on` as a context manager, which may change settings for one call:
        `with guidance.attached(pipe, diversity=0.8) as given: pipe(prompts, **given)`.

        If the call raises, the window stays as it was, and the scheduler and the network are
        restored at once.
        """
        before = self.keeps, self.undistilled, self.settings
        undistilled = changes.pop("undistilled", self.undistilled)  # None is a value
        settings, inputs = adjusted(self.settings, changes, preset), callback_tensor_inputs
        try:
            self.keeps = self.keeps if memory is None else memory
            self.undistilled, self.settings = undistilled, settings
            # finished samples enter the window only if the block succeeds
            with self.memory.holding() as finished:
                yield self.on(pipeline, callback=callback, callback_tensor_inputs=inputs)
            if self._call is not None and not self._call.has_begun:
                self._warn_unguided("the pipeline did not call its callback")
            self.memory.commit(finished)
        finally:
            self._end()
            self.keeps, self.undistilled, self.settings = before

    def explain(self, pipeline: Any, **arguments: Any) -> str:
        """How a call of the pipeline with these arguments would be guided, why, and the facts that
        decide it. The call is begun, and ends after its first step; nothing is remembered.

        Example:
            >>> from tests.helpers.tiny_pipelines import CASES
            >>> pipe, prompts = CASES["SDXL"].make(), CASES["SDXL"].arguments([0, 0])
            >>> text = VendiGuidance(preset="published").explain(pipe, **prompts)
            >>> print(text)
            guided as published: the settings ask for it
        """

        def call() -> None:
            with self.attached(pipeline) as given:
                pipeline(**arguments, **given)

        return self.explanation_of(call)

    def explanation_of(self, call: Callable[[], Any]) -> str:
        """`explain` for a function that calls a pipeline, guided by this."""
        self._is_explaining = True
        try:
            call()
        except _ExplainedError as explained:
            return str(explained)
        finally:
            self._is_explaining = False
        return "undecided: the pipeline did not call its callback"

    def begin(self, pipeline: Any, owner: Any) -> Call:
        """The next call of the pipeline, to be opened, which lasts no longer than `owner`."""
        self._end()
        check_lasting(self.keeps)
        given = (self.settings, self.memory, self.undistilled, self._prompt_input)
        self._call = Call(pipeline, *given, owner)
        return self._call

    def callback_fn(
        self, pipeline: Any, step_index: int, timesteps: Any, callback_kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """Called by diffusers after each step: see `diffusers.callbacks.PipelineCallback`."""
        return self.guide(pipeline, step_index, count_steps(pipeline), callback_kwargs)

    def guide(
        self, pipeline: Any, step_index: int, count: int, callback_kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """The tensors after a step, one of `count`, with guided latents. The pipeline may be any
        object with its scheduler and network."""
        call = self._call
        if call is None or (step_index == 0 and call.has_begun):  # a new call, without `on`
            if not self.settings.is_off:
                check_attention(pipeline)
            call = self.begin(pipeline, self)
        call.has_begun = True
        is_last, guided = step_index >= count - 1, callback_kwargs
        if not call.settings.is_off or self.record:
            scheduled = getattr(pipeline.scheduler, "num_inference_steps", None) or 0
            step = Step(step_index, count, guided["latents"], pipeline, scheduled=scheduled)
            is_kept = is_last and self.keeps == "session" and is_finished(pipeline)
            guided = {**guided, "latents": call.guide(step, guided, is_kept).latents}
        if self._is_explaining:
            raise _ExplainedError(str(call.engine))
        if is_last:
            self._warn_unguided(call.why_unguided(pipeline, count))
            self._end()
        return guided

    def _call_users(self, callback: Callback | None, *given: Any) -> dict[str, Any] | None:
        if callback is None or self._call is None:
            return None if callback is None else callback(*given)
        return self._call.of_user(callback, *given)

    def _end(self) -> None:
        """Close the current call, if there is one."""
        if self._call is not None:
            self._call.close()
        self._call = None

    def _warn_unguided(self, reason: str | None) -> None:
        if reason is not None and not self._has_warned:
            self._has_warned = True
            logger.warning("no step of this call was guided: %s", reason)


# the signature and the docstring list each field of `Rounds` and `Published`
show_settings(VendiGuidance.__init__, SETTINGS)
VendiGuidance.__doc__ = (VendiGuidance.__doc__ or "").format(settings=describe(SETTINGS))
