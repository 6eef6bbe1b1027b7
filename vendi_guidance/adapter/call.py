"""Guidance of one call of a diffusers pipeline.

The engine (`guidance.engine`), which knows nothing of diffusers, makes the decisions. A `Call`
supplies what it needs from the pipeline: the scheduler's prediction, the network and the prompts.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import get_ident
from typing import Any

from vendi_guidance.adapter.denoiser import Network
from vendi_guidance.adapter.families import family_of
from vendi_guidance.adapter.prompts import is_pooled_clip, prompt_features, why_no_prompts
from vendi_guidance.adapter.schedule import Watch, can_continue, continue_from_here
from vendi_guidance.adapter.undistilled import AUTO, Undistilled
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import SIGMA_PROMPT, Published, Rounds
from vendi_guidance.guidance.step import Prediction, Step
from vendi_guidance.guidance.timing import cfg_every, is_distilled
from vendi_guidance.patching import Patch


class Call:
    """One call of a pipeline. It watches the scheduler and the network until it is closed.

    Other calls may share both. A call's own steps are those in its thread, which the first callback
    reveals, until the schedule is set again, except within the user's callback. Before the first
    callback each thread is watched for itself, and nothing is changed.

    Args:
        undistilled: the network that predicts in the rounds: see `VendiGuidance`.
        prompt_input: name of the tensor that identifies prompts; None is the best one.

    Attributes:
        engine: decides which steps to guide, and guides them.
        has_begun: whether the pipeline has made a step.

    Raises:
        ValueError: the pipeline or its scheduler does not support the settings.
    """

    def __init__(
        self,
        pipeline: Any,
        settings: Rounds | Published,
        memory: Memory,
        undistilled: Undistilled = AUTO,
        prompt_input: str | None = None,
    ) -> None:
        if (
            undistilled not in (None, AUTO)
            and isinstance(settings, Published)
            and not settings.is_off
        ):
            raise ValueError(
                "undistilled is for rounds, and guidance as published makes none: leave it out"
            )
        kind = type(pipeline).__name__
        if family_of(pipeline).perturbs_attention and not settings.is_off:
            raise ValueError(
                f"{kind} perturbs attention (PAG), which guidance does not support: use "
                f"{kind.replace('PAG', '')}"
            )
        self.settings = settings
        self.engine = Engine(settings, memory)
        self.has_begun = False
        self._undistilled = undistilled
        self._prompt_input = prompt_input
        self._thread: int | None = None
        self._is_paused = self._is_guided = False
        self._watch: Watch | None = None
        self._network: Network | None = None
        self._schedule: Patch | None = None
        self._follow(pipeline)

    def close(self) -> None:
        """Restore the scheduler and the network."""
        if self._schedule is not None:
            self._schedule.remove()
        for watched in (self._network, self._watch):
            if watched is not None:
                watched.stop()
        self._watch = self._network = self._schedule = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within this context all steps and evaluations belong to other calls. An error ends this
        call."""
        self._is_paused = True
        try:
            yield
        except BaseException:
            self.close()
            raise
        finally:
            self._is_paused = False

    def guide(self, step: Step, tensors: dict[str, Any], is_kept: bool) -> Step:
        """The step with guided latents, if it is due.

        Args:
            step: the step that the pipeline has just made.
            tensors: those of the pipeline's callback.
            is_kept: whether to remember the samples.

        Raises:
            RuntimeError: earlier steps of the call were made in another thread.
            ValueError: the pipeline passed no prompt embeddings, or does not support rounds.
        """
        if self._thread not in (None, get_ident()):
            raise RuntimeError(
                "this guidance is guiding another thread's call: give each thread a VendiGuidance "
                "of its own"
            )
        self._thread = get_ident()
        is_due = self._observe(step)
        if (self._prompt_input or self.settings.is_conditional) and (is_due or is_kept):
            step = self._with_prompts(step, tensors)
        if is_due:
            step = self._modify(step)
        if is_kept:
            self.engine.remember(step)
        return step

    def why_unguided(self, pipeline: Any, count: int) -> str | None:
        """The reason why none of the call's `count` steps was guided; None if one was, or if
        guidance is off."""
        if self._is_guided or self.settings.is_off:
            return None
        if count == 1:
            return "it has one step, after which nothing is left to guide: use more steps"
        scheduler = type(pipeline.scheduler).__name__
        if self._watch is not None and not self._watch.steps:
            return f'its {scheduler} made no step, perhaps a copy did: use preset="published"'
        return f"{scheduler} would have discarded each change"

    def _observe(self, step: Step) -> bool:
        """Record a step, and prepare the network for the next one; whether to modify this one."""
        is_known = self._follow(step.pipeline)
        network = self._network if is_known else None
        step = replace(step, network=network)
        if network is not None and isinstance(self.settings, Rounds):
            may_be_off = is_distilled(step) and self.settings.proposal != "prompt"
            # after the last step, a prediction without LoRAs would be a blurred image
            network.settle(may_be_off and not step.is_last)
        is_due = (
            self.engine.observe(step)
            and is_known
            and (step.is_last or can_continue(step.pipeline.scheduler))
        )
        if network is not None:
            network.cfg.share = self.engine.share_of_cfg(network.levels[1], is_due)
            if self.engine.is_undecided(step):
                network.predict_the_same(step.latents)
        return is_due

    def _with_prompts(self, step: Step, tensors: dict[str, Any]) -> Step:
        """The step with the features of its prompts. If no prompt bandwidth is known yet, pooled
        CLIP embeddings set it to the published one."""
        name, memory = self._prompt_input, self.engine.memory
        prompts = prompt_features(step.pipeline, tensors, name)
        if prompts is None:
            raise ValueError(f"the objective compares prompts: {why_no_prompts(step.pipeline)}")
        is_known = self.settings.sigma_prompt or memory.sigma_prompt
        if not is_known and is_pooled_clip(step.pipeline, tensors, name):
            memory.sigma_prompt = SIGMA_PROMPT
        return replace(step, prompts=prompts)

    def _modify(self, step: Step) -> Step:
        if not step.is_last:
            continue_from_here(step.pipeline.scheduler)
        network = self._network
        first = None if self._watch is None else self._watch.first
        step = replace(step, prediction=self._prediction(step), network=network, first=first)
        self._is_guided = True
        remark = ""
        if self._undistilled == AUTO and network is not None and network.is_undistilled:
            remark = "; LoRAs are off in the rounds (undistilled=None or --undistilled none: on)"
        return self.engine.modify(step, remark)

    def _prediction(self, step: Step) -> Prediction | None:
        """The scheduler's prediction at this step; None if the settings need none."""
        if self._watch is None:
            return None
        prediction = self._watch.prediction
        if prediction.denoised.shape != step.latents.shape:
            raise ValueError(
                f"the scheduler predicts latents of shape {tuple(prediction.denoised.shape)}, the "
                f'pipeline has {tuple(step.latents.shape)}: use preset="published", which needs '
                "no prediction"
            )
        return prediction

    def _follow(self, pipeline: Any) -> bool:
        """Watch the scheduler and the network if the settings need them.

        Returns:
            False if watching begins only now, so that the last step is not known.
        """
        if self.settings.is_off or not self.settings.needs_prediction:
            return True
        scheduler = pipeline.scheduler
        if self._watch is not None and self._watch.scheduler is scheduler:
            return self._watch.steps > 0
        self.close()
        watch = Watch(scheduler, self._is_here)
        if isinstance(self.settings, Rounds):
            every = cfg_every(self.settings)
            self._network = Network(pipeline, watch, self._undistilled, every).start()
        self._watch = watch.start()
        if hasattr(scheduler, "set_timesteps"):
            self._schedule = Patch(scheduler, "set_timesteps", self._begins, self._is_here)
            self._schedule.apply()
        return False

    def _is_here(self) -> bool:
        """Whether the current code may belong to this call."""
        return not self._is_paused and self._thread in (None, get_ident())

    def _begins(self, set_timesteps: Callable[..., Any]) -> Callable[..., Any]:
        """A call begins by setting the schedule: this one or, once it has begun, another one."""
        if self.has_begun:
            self.close()
        elif self._watch is not None:
            self._watch.forget()
            if self._network is not None:
                self._network.cfg.forget()
        return set_timesteps
