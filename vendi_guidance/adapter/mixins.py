"""Mixins that add `diversity` arguments to the call of a stock pipeline.

A guided pipeline is a class whose first base is a mixin and whose last base is the stock pipeline.
The mixin is `DiversityGuided`, or `GuidedInPlace` for PixArt.
"""

import copy
import difflib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from inspect import Parameter, signature
from typing import Any, ClassVar

from diffusers import DiffusionPipeline
from torch import Tensor

from vendi_guidance.adapter.callback import Callback, VendiGuidance
from vendi_guidance.adapter.families import count_steps
from vendi_guidance.adapter.undistilled import check_undistilled
from vendi_guidance.guidance.memory import check_lasting
from vendi_guidance.guidance.setting import describe, show_settings
from vendi_guidance.guidance.settings import SETTINGS, adjusted, with_prefix
from vendi_guidance.kernels.base import check_count

OF_A_CALL = [
    Parameter(with_prefix(name), Parameter.KEYWORD_ONLY, default=..., annotation=kind)
    for name, kind in {"preset": str, "window": int, "memory": str, "undistilled": Any}.items()
]
"""The arguments of a guided call that are not settings."""

DEPRECATED = ("callback", "callback_steps")
"""Arguments that calls with `**kwargs` may still accept."""

BINNED = (32, 64, 128, 256)
"""The sample sizes for which PixArt supports resolution binning."""

OnStep = Callable[[int, int], None]
"""Called with the number of a step, from 1, and the number of steps of the call."""

CALL = """Generate images with diversity guidance. All arguments of {stock} work as well.

        Your own callback gets guided latents. If the call raises, the window stays as it was. Once
        samples are remembered, the same seed gives another image, unless `diversity_memory="call"`.

        Args (for this call; the others are as in `pipe.guidance`):
        diversity_preset: "published", the paper's settings.
        diversity_window: How many samples to remember, in later calls too.
        diversity_memory: "session" to remember the samples of this call, "call" not to.
        diversity_undistilled: The network that predicts in the rounds: "adapters" (the pipeline's
            network without its LoRAs), the network that it was distilled from, None (the
            pipeline's own) or "auto" (the default); see `VendiGuidance`.
        {settings}

        Raises:
            ValueError: a value is out of range; the message names it.
            TypeError: an argument does not exist; the message suggests the nearest one.

        {stock}:
{doc}"""


class DiversityGuided:
    """Adds `diversity` arguments to a pipeline that takes `callback_on_step_end`. With
    `diversity=0` the pipeline is the stock one."""

    stock: ClassVar[type[DiffusionPipeline]]
    """The stock pipeline: the last base."""

    prompt_input: ClassVar[str]
    """See `VendiGuidance`."""

    __call__: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if issubclass(cls, DiffusionPipeline) and not hasattr(cls, "stock"):
            cls.stock = cls.__bases__[-1]
            setattr(cls, "__call__", _guided_call(cls.stock))  # noqa: B010

    @functools.cached_property
    def guidance(self) -> VendiGuidance:
        """The guidance, whose window lasts from call to call; assign another one to replace it."""
        return VendiGuidance(prompt_input=self.prompt_input)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """How a call with these arguments would be guided, and why: see `VendiGuidance.explain`."""
        return self.guidance.explanation_of(lambda: self(*args, **kwargs))

    @property
    def config(self) -> Any:
        """The stock pipeline's configuration. diffusers' `AutoPipeline`s read it before they look
        for the name of this class, which is added to theirs."""
        auto = sys.modules.get("diffusers.pipelines.auto_pipeline")
        tables = [] if auto is None else auto.SUPPORTED_TASKS_MAPPINGS
        model = next((it for table in tables for it in table if table[it] is self.stock), None)
        if model is not None and {model: type(self)} not in tables:
            tables.append({model: type(self)})
        stock: Any = super()
        return stock.config

    @classmethod
    def from_pipe(cls, pipeline: Any, **kwargs: Any) -> Any:
        """The stock pipeline's `from_pipe`, which also shares the `guidance` of a guided one."""
        stock: Any = super()
        made = stock.from_pipe(pipeline, **kwargs)
        if isinstance(pipeline, DiversityGuided):
            made.guidance = pipeline.guidance
        return made

    def _check_settings(self, given: dict[str, Any]) -> None:
        """Raise ValueError if a value is out of range; the message has the name of the argument."""
        changes = dict(given)
        preset = changes.pop("preset", None)
        try:
            check_count("window", changes.pop("window", 1))
            if (memory := changes.pop("memory", None)) is not None:
                check_lasting(memory)
            check_undistilled(changes.pop("undistilled", None))
        except ValueError as error:
            raise ValueError(f"diversity_{error}") from None
        adjusted(self.guidance.settings, changes, preset, with_prefix)

    def _attached(
        self, given: dict[str, Any], changes: dict[str, Any]
    ) -> AbstractContextManager[dict[str, Any]]:
        """Attach guidance to a call with the arguments `given`; yields those that guide it."""
        return self.guidance.attached(
            self,
            callback=given["callback_on_step_end"],
            callback_tensor_inputs=given["callback_on_step_end_tensor_inputs"],
            **changes,
        )

    def watched(self, on_step: OnStep) -> dict[str, Any]:
        """Arguments of a call that reports each step to `on_step`; an exception in `on_step` ends
        the call."""

        def report(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            on_step(step + 1, count_steps(pipe))
            return tensors

        return {"callback_on_step_end": report}

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs: Any) -> None:
        """Save as the stock pipeline, which loads with and without this package."""
        stock: Any = copy.copy(self)  # `from_pipe` would convert the weights to float32
        stock.__class__ = self.stock
        stock.save_pretrained(save_directory, **kwargs)


class GuidedInPlace(DiversityGuided):
    """For PixArt pipelines, which have only the older `callback`: it gets no prompts, and what it
    returns is ignored."""

    encoded: dict[str, Tensor] | None = None
    """The embeddings of the call's prompts, and their mask."""

    prompt_input = "prompt_embeds"
    scheduler: Any
    transformer: Any

    def encode_prompt(self, *args: Any, **kwargs: Any) -> Any:
        """The stock pipeline's embeddings, which are recorded for guidance."""
        stock: Any = self.stock
        found = stock.encode_prompt(self, *args, **kwargs)
        self.encoded = {"prompt_embeds": found[0], "prompt_attention_mask": found[1]}
        return found

    def watched(self, on_step: OnStep) -> dict[str, Any]:
        return {"callback": lambda step, *_: on_step(step + 1, count_steps(self))}

    def in_place(self, guide: Callable[..., Any], callback: Callback) -> dict[str, Any]:
        """The arguments of a call whose latents `guide` changes, before the user's `callback`."""

        def on_step(step: int, timestep: Any, latents: Tensor) -> None:
            tensors = {"latents": latents, **(self.encoded or {})}
            guided = guide(self, step, timestep, tensors)["latents"]
            if guided is not latents:
                latents.copy_(guided)
            callback(step, timestep, latents)

        return {"callback": on_step, "callback_steps": 1}

    @contextmanager
    def _attached(self, given: dict[str, Any], changes: dict[str, Any]) -> Iterator[dict[str, Any]]:
        callback, every = given["callback"], given["callback_steps"]
        check_count("callback_steps", every)
        if self.transformer.config.sample_size not in BINNED:  # PixArt would reject the model
            given["use_resolution_binning"] = False

        def every_steps(step: int, timestep: Any, latents: Tensor) -> None:
            evaluations = min((step + 1) * self.scheduler.order, len(self.scheduler.timesteps))
            if callback is not None and (evaluations - 1) % every == 0:
                callback(step, timestep, latents)

        try:
            with self.guidance.attached(self, callback=every_steps, **changes) as guiding:
                yield guiding
        finally:
            self.encoded = None


def _guided_call(stock: type[DiffusionPipeline]) -> Callable[..., Any]:
    """`__call__` of the guided pipeline, with the stock one's parameters and ours."""
    plain = signature(stock.__call__)
    swallows = any(it.kind is Parameter.VAR_KEYWORD for it in plain.parameters.values())

    @functools.wraps(stock.__call__)
    def __call__(self: DiversityGuided, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        known = [*plain.parameters, *ours, *DEPRECATED[: 2 * swallows]]
        for name in kwargs:  # some stock pipelines would ignore an unknown one
            if name not in known:
                [nearest, *_] = difflib.get_close_matches(name, known, 1, cutoff=0)
                kind = type(self).__name__
                raise TypeError(f"{kind} takes no {name!r}: did you mean {nearest!r}?")
        changes = {
            name.removeprefix("diversity_"): kwargs.pop(name) for name in ours if name in kwargs
        }
        call = plain.bind(self, *args, **kwargs)
        call.apply_defaults()
        self._check_settings(changes)
        window = self.guidance.window
        size = changes.pop("window", window.size)
        with window.resized(size), self._attached(call.arguments, changes) as guiding:
            call.arguments.update(guiding)
            return stock.__call__(*call.args, **call.kwargs)

    ours = show_settings(__call__, SETTINGS, with_prefix, OF_A_CALL)
    __call__.__doc__ = CALL.format(
        stock=stock.__name__,
        settings=describe(SETTINGS, with_prefix),
        doc=stock.__call__.__doc__ or "",
    )
    return __call__
