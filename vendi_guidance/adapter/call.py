"""Guidance of one call of a diffusers pipeline, which supplies what the engine needs: the
scheduler's prediction, the network and the prompts."""

import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from threading import get_ident
from typing import Any
from weakref import WeakSet, finalize, ref

from diffusers import DiffusionPipeline

from vendi_guidance.adapter.denoiser import Network
from vendi_guidance.adapter.families import has_fixed_end
from vendi_guidance.adapter.patching import patched
from vendi_guidance.adapter.prompts import ComparedPrompts
from vendi_guidance.adapter.schedule import Watch, can_continue, continue_from_here
from vendi_guidance.adapter.undistilled import Undistilled, check_undistilled
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import Published, Rounds
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.ways.stock import Way

_owners: WeakSet[Any] = WeakSet()
"""The callbacks of calls that are awaited."""


class Call:
    """One call of a pipeline, of which the scheduler and the network are watched from `open`, or
    from the beginning of its denoising loop after `await_loop`, until `close`.

    All that is changed of the pipeline is undone by one `ExitStack`, which `close` closes. The call
    closes itself where the loop ends, however it ends, and where an error leaves what is watched.

    `engine` guides it. The arguments are those of `VendiGuidance`, and an object with which the
    call ends at the latest: all that guides it has to refer to it. ValueError if the pipeline or
    its scheduler does not support the settings.
    """

    def __init__(
        self,
        pipeline: Any,
        settings: Rounds | Published,
        memory: Memory,
        undistilled: Undistilled,
        prompt_input: str | None,
        owner: Any,
    ) -> None:
        check_undistilled(undistilled, settings)
        self.settings = settings
        self.has_begun = False
        self.watch: Watch | None = None
        self.engine = Engine(settings, memory)
        self._undistilled = undistilled
        self._prompts = ComparedPrompts(prompt_input, settings, memory)
        self._thread: int | None = None
        self._is_guided = False
        self._network: Network | None = None
        self._owner = ref(owner)
        self._undo = ExitStack()
        self._look_at(pipeline)

    def await_loop(self, pipeline: Any, argument: str) -> None:
        """Open where the pipeline's progress bar begins in a call that may have got the owner as
        this argument, and close where it ends. Where that is not the one of diffusers, open now."""
        if getattr(type(pipeline), "progress_bar", None) is not DiffusionPipeline.progress_bar:
            return self.open(pipeline)

        def ended(close: Callable[[], Any]) -> Any:
            self.close()
            return close()

        def begun(progress_bar: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            bar, given = progress_bar(*args, **kwargs), _argument_of_call(argument)
            is_other = any(given is it for it in _owners) and given is not self._owner()
            if given is not None and not is_other:
                self.open(pipeline)
                # tqdm calls it however its context or iteration ends; others may be without it
                with suppress(AttributeError, TypeError):
                    self._undo.enter_context(patched(bar, "close", lambda it: partial(ended, it)))
            return bar

        self._begin_anew()
        _owners.add(self._owner())
        self._undo.enter_context(patched(pipeline, "progress_bar", lambda it: partial(begun, it)))

    def is_next_of(self, pipeline: Any) -> bool:
        """Whether the call has not begun, and is not one of another pipeline."""
        others = self.watch is not None and self.watch.scheduler is not pipeline.scheduler
        return not (self.has_begun or others)

    def open(self, pipeline: Any) -> None:
        """Watch the scheduler and the network."""
        self._begin_anew()
        self._look_at(pipeline)
        for watched in (self.watch, self._network):
            if watched is not None:
                self._undo.enter_context(watched)

    def close(self) -> None:
        """Restore the pipeline, and release it and the tensors of its steps."""
        self._undo.close()
        self.watch = self._network = None
        self.engine = Engine(self.settings, self.engine.memory)  # the old one has seen steps

    def _begin_anew(self) -> None:
        self._undo.close()
        owner = self._owner()
        if owner is not None:
            self._undo.callback(finalize(owner, self.close).detach)

    def guide(self, step: Step, tensors: dict[str, Any], is_kept: bool) -> Step:
        """The step, with guided latents if it is due, from the tensors of the pipeline's callback.
        If `is_kept`, its samples are remembered."""
        if self._thread not in (None, get_ident()):
            raise RuntimeError(
                "this guidance is guiding another thread's call: give each thread a VendiGuidance "
                "of its own"
            )
        self._thread = get_ident()
        step = replace(step, has_fixed_end=has_fixed_end(step.pipeline))
        try:
            if self._prompts.are_needed and (is_kept or not self.settings.is_off):
                step = replace(step, prompts=self._prompts.features(step.pipeline, tensors))
            step = self._guided(step)
        except BaseException:
            self.close()  # its network may serve another call
            raise
        if is_kept:
            self.engine.remember(step)
        return step

    def of_user(self, callback: Callable[..., Any], *given: Any) -> Any:
        """What the user's callback returns. If that changes the number of latents, the next step is
        a stock one."""
        if (watch := self.watch) is None:
            return callback(*given)
        was_on, watch.is_on = watch.is_on, False
        with watch.ending():
            changes = callback(*given)
        watch.is_on = was_on
        has_latents = isinstance(changes, dict) and "latents" in changes and watch.steps > 0
        is_resized = has_latents and len(changes["latents"]) != len(watch.step.sample)
        if self._network is not None and is_resized:
            self._network.cfg.share = 1.0
        return changes

    def why_unguided(self, pipeline: Any, count: int) -> str | None:
        """Why guidance is on and yet none of the call's `count` steps was guided, or None."""
        if self._is_guided or self.settings.is_off:
            return None
        if type(self.engine.way) is Way:
            return self.engine.why_off
        if count == 1:
            return "it has one step, after which nothing is left to guide: use more steps"
        scheduler = type(pipeline.scheduler).__name__
        if self.watch is not None and not self.watch.steps:
            return f'its {scheduler} made no step, perhaps a copy did: use preset="published"'
        return f"{scheduler} would have discarded each change"

    def _guided(self, step: Step) -> Step:
        """The step with guided latents if it is due; the network is prepared for the next one."""
        scheduler, is_known = step.pipeline.scheduler, self._follow(step.pipeline)
        watch, network = self.watch, self._network if is_known else None
        if watch is not None:
            watch.settle()
            step = replace(step, network=network, first=watch.first)
        is_due = self.engine.observe(step) and is_known
        is_due = is_due and (step.is_last or can_continue(scheduler))
        way = self.engine.way
        if network is not None and way is not None:
            network.cfg.share = way.share_of_cfg(network.levels[1].ratio, is_due)
        if not is_due:
            return step
        if not step.is_last:
            continue_from_here(scheduler)
        if watch is not None:
            step = replace(step, prediction=watch.prediction)
            found, own = watch.prediction.denoised.shape, step.latents.shape
            if found != own:
                raise ValueError(
                    f"the scheduler predicts latents of shape {tuple(found)}, the pipeline has "
                    f'{tuple(own)}: use preset="published", which needs no prediction'
                )
        self._is_guided = True
        return self.engine.modify(step)

    def _follow(self, pipeline: Any) -> bool:
        """Whether the last step is known: False if it is watched only from now on."""
        if self.settings.is_off or not self.settings.needs_prediction:
            return True
        watch = self.watch
        if watch is not None and watch.scheduler is pipeline.scheduler and watch.is_here:
            return watch.steps > 0
        self.open(pipeline)
        return False

    def _look_at(self, pipeline: Any) -> None:
        """Find what is to be watched, as far as the settings need it."""
        self.watch = self._network = None
        if self.settings.is_off or not self.settings.needs_prediction:
            return
        self.watch = Watch(pipeline.scheduler, self.close)
        if isinstance(self.settings, Rounds):
            self._network = Network(pipeline, self.watch, self._undistilled)


def _argument_of_call(name: str) -> Any:
    """What the innermost pipeline call that is running got as this argument; "unknown" if none
    takes it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and name not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals.get(name, "unknown")
