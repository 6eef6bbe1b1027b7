"""What the guided pipelines have in common: `diversity` arguments around a stock pipeline's call.

A guided pipeline is a class with a mixin below as its first base and the stock pipeline as its
last: `DiversityGuided`, or `GuidedInPlace` for the two PixArt.
"""

import copy
import difflib
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from inspect import BoundArguments, Parameter, signature
from typing import Any, ClassVar

from diffusers import DiffusionPipeline
from torch import Tensor

from vendi_guidance.adapter.callback import VendiGuidance
from vendi_guidance.adapter.calling import arguments, count_steps
from vendi_guidance.adapter.undistilled import check_undistilled
from vendi_guidance.checks import check_count
from vendi_guidance.guidance.memory import check_lasting
from vendi_guidance.guidance.settings import NOT_GIVEN, describe, show_settings

DIAL = "diversity"
PREFIX = "diversity_"

OF_A_CALL = {
    DIAL: float,
    "diversity_preset": str,
    "diversity_window": int,
    "diversity_memory": str,
    "diversity_undistilled": Any,
}
"""The arguments of a call beside the settings."""

DEPRECATED = ("callback", "callback_steps")
"""Arguments that a call with `**kwargs` may still read there."""

BINNED = (32, 64, 128, 256)
"""The sample sizes that PixArt bins resolutions for."""

OnStep = Callable[[int, int], None]
"""Gets the number of a step, from 1, and how many steps the call has."""

CALL = """Generate as {stock} does, whose arguments all hold, with these settings for this call.

        Your own callback is called with guided latents. If the call raises, the window stays as it
        was. The same seed gives another image once something is remembered, unless
        `diversity_memory="call"`.

        Args (those not given are as in `pipe.guidance`):
        diversity: The dial: 0 is exactly {stock}, 1 the most variety, 0.5 the default.
        diversity_preset: "published", the paper's settings.
        diversity_window: How many samples to remember, in later calls too.
        diversity_memory: "session" to remember samples of this call, "call" not to.
        diversity_undistilled: What predicts in the rounds: "adapters", the pipeline's network
            without its LoRAs; the network that it was distilled from; None, its own; or "auto",
            the default; see `VendiGuidance`.
        {settings}

        Raises:
            ValueError: a value out of its range, named in the message.
            TypeError: an argument that does not exist; the message names the nearest that does.

        {stock}:
{doc}"""


class DiversityGuided:
    """A pipeline whose calls take `diversity`; with `diversity=0` a stock one. The stock one takes
    `callback_on_step_end`."""

    stock: ClassVar[type[DiffusionPipeline]]
    """The pipeline that is guided: the last base."""

    prompt_input: ClassVar[str]
    """See `VendiGuidance`."""

    __call__: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if issubclass(cls, DiffusionPipeline) and not hasattr(cls, "stock"):
            cls.stock = cls.__bases__[-1]
            setattr(cls, "__call__", _guided_call(cls.stock))  # noqa: B010

    @property
    def guidance(self) -> VendiGuidance:
        """The guidance, its window kept from call to call; assign another one to replace it."""
        if not hasattr(self, "_guidance"):
            self._guidance = VendiGuidance(prompt_input=self.prompt_input)
        return self._guidance

    @guidance.setter
    def guidance(self, guidance: VendiGuidance) -> None:
        self._guidance = guidance

    def _check_settings(self, given: dict[str, Any]) -> None:
        """Raise ValueError for a value out of its range, by the name that it has in a call."""
        changes = dict(given)
        try:
            check_count("window", changes.pop("window", 1))
            if (memory := changes.pop("memory", None)) is not None:
                check_lasting(memory)
            check_undistilled(changes.pop("undistilled", None))
            self.guidance.settings.changed(**changes)
        except ValueError as error:
            name, _, reason = str(error).partition(" ")
            name = DIAL if name == "strength" else PREFIX + name
            reason = reason.replace("strength", DIAL)
            raise ValueError(f"{name} {reason}") from None

    def _call_guided(self, call: BoundArguments, changes: dict[str, Any]) -> Any:
        window = self.guidance.window
        size = changes.pop("window", window.size)
        with window.resized(size), self._attached(call.arguments, changes) as guiding:
            call.arguments.update(guiding)
            return self.stock.__call__(*call.args, **call.kwargs)

    def _attached(
        self, given: dict[str, Any], changes: dict[str, Any]
    ) -> AbstractContextManager[dict[str, Any]]:
        """Attach guidance to a call given some arguments; yields those that guide it."""
        return self.guidance.attached(
            self,
            given["generator"],
            callback=given["callback_on_step_end"],
            callback_tensor_inputs=given["callback_on_step_end_tensor_inputs"],
            **changes,
        )

    def watched(self, on_step: OnStep) -> dict[str, Any]:
        """The arguments of a call that reports each of its denoising steps to `on_step`; what that
        raises ends the call."""

        def report(pipeline: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> None:
            on_step(step + 1, count_steps(pipeline))

        return arguments(self, report, ["latents"])

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs: Any) -> None:
        """Save as the stock pipeline, so that anyone can load it, with or without this package."""
        stock: Any = copy.copy(self)  # `from_pipe` would turn the weights into single precision
        stock.__class__ = self.stock
        stock.save_pretrained(save_directory, **kwargs)


class GuidedInPlace(DiversityGuided):
    """For the two PixArt, which have only the older `callback` and ignore what it returns."""

    prompt_input = "prompt_embeds"
    scheduler: Any
    transformer: Any

    def _attached(
        self, given: dict[str, Any], changes: dict[str, Any]
    ) -> AbstractContextManager[dict[str, Any]]:
        users, every = given["callback"], given["callback_steps"]
        check_count("callback_steps", every)
        if self.transformer.config.sample_size not in BINNED:  # else PixArt refuses the model
            given["use_resolution_binning"] = False

        def at_times(step: int, timestep: Any, latents: Tensor) -> None:
            evaluations = min((step + 1) * self.scheduler.order, len(self.scheduler.timesteps))
            if users is not None and (evaluations - 1) % every == 0:
                users(step, timestep, latents)

        return self.guidance.attached(self, given["generator"], callback=at_times, **changes)


def _check_names(kind: type, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise TypeError for a name that is not known: stock pipelines may ignore it."""
    for name in given:
        if name not in known:
            [nearest, *_] = difflib.get_close_matches(name, known, 1, cutoff=0)
            nearest = DIAL if name == "strength" else nearest  # of `VendiGuidance`
            raise TypeError(f"{kind.__name__} takes no {name!r}: did you mean {nearest!r}?")


def _guided_call(stock: type[DiffusionPipeline]) -> Callable[..., Any]:
    """`__call__` of the guided pipeline: the stock one's parameters, and ours."""
    plain = signature(stock.__call__)
    swallows = any(it.kind is Parameter.VAR_KEYWORD for it in plain.parameters.values())

    @functools.wraps(stock.__call__)
    def __call__(self: DiversityGuided, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        _check_names(type(self), kwargs, [*plain.parameters, *ours, *DEPRECATED[: 2 * swallows]])
        changes = {
            "strength" if name == DIAL else name.removeprefix(PREFIX): kwargs.pop(name)
            for name in ours
            if name in kwargs
        }
        call = plain.bind(self, *args, **kwargs)
        call.apply_defaults()
        self._check_settings(changes)
        return self._call_guided(call, changes)

    first = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=NOT_GIVEN, annotation=kind)
        for name, kind in OF_A_CALL.items()
    ]
    ours = show_settings(__call__, PREFIX, first)
    __call__.__doc__ = CALL.format(
        stock=stock.__name__, settings=describe(PREFIX).strip(), doc=stock.__call__.__doc__ or ""
    )
    return __call__
