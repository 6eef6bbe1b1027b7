"""Guidance of one call of a diffusers pipeline.

After each step `VendiGuidance.guide` calls `observe`, and `modify` if the step is due. The engine
(`guidance.engine`), which knows nothing of diffusers, makes the decisions. A `Call` supplies what
it needs from the pipeline: the scheduler's prediction, the network and the generator.
"""

from dataclasses import replace
from threading import get_ident
from typing import Any

from vendi_guidance.adapter.calling import RunningCall, local_of
from vendi_guidance.adapter.denoiser import Network
from vendi_guidance.adapter.families import family_of
from vendi_guidance.adapter.prompts import is_pooled_clip, prompt_features, why_no_prompts
from vendi_guidance.adapter.schedule import Watch, can_continue, continue_from_here
from vendi_guidance.adapter.undistilled import AUTO, Undistilled
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import SIGMA_PROMPT, Published, Rounds
from vendi_guidance.guidance.step import Generator, Prediction, Step
from vendi_guidance.guidance.timing import cfg_every, is_distilled


class Call:
    """One call of a pipeline. It watches the scheduler and the network until it is closed.

    Args:
        generator: for fresh noise; None is the generator of the pipeline's call, if it has one.
        undistilled: the network that predicts in the rounds: see `VendiGuidance`.

    Attributes:
        engine: decides which steps to guide, and guides them.
        has_begun: whether the pipeline has made a step.
        is_guided: whether a step has been modified.

    Raises:
        ValueError: the pipeline or its scheduler does not support the settings.
    """

    def __init__(
        self,
        pipeline: Any,
        settings: Rounds | Published,
        memory: Memory,
        generator: Generator,
        undistilled: Undistilled = AUTO,
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
        self._undistilled = undistilled
        self.has_begun = self.is_guided = False
        self._thread: int | None = None
        self._generator = generator
        self.engine = Engine(settings, memory)
        self._watch: Watch | None = None
        self._network: Network | None = None
        self._follow(pipeline)

    def close(self) -> None:
        """Restore the scheduler and the network."""
        for watched in (self._network, self._watch):
            if watched is not None:
                watched.stop()
        self._watch = self._network = None

    def observe(self, step: Step) -> bool:
        """Record a step of the call, and prepare the network for the next one.

        Returns:
            Whether this step is to be modified.

        Raises:
            RuntimeError: earlier steps of the call were made in another thread.
        """
        if self._thread not in (None, get_ident()):
            raise RuntimeError(
                "this guidance is guiding another thread's call: give each thread a VendiGuidance "
                "of its own"
            )
        self._thread = get_ident()
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

    def with_prompts(self, step: Step, tensors: dict[str, Any], name: str | None) -> Step:
        """The step with the features of its prompts.

        If no prompt bandwidth is known yet, pooled CLIP embeddings set it to the published one.

        Args:
            tensors, name: see `prompt_features`.

        Raises:
            ValueError: the pipeline passed no prompt embeddings.
        """
        prompts, memory = prompt_features(step.pipeline, tensors, name), self.engine.memory
        if prompts is None:
            raise ValueError(f"the objective compares prompts: {why_no_prompts(step.pipeline)}")
        is_known = self.settings.sigma_prompt or memory.sigma_prompt
        if not is_known and is_pooled_clip(step.pipeline, tensors, name):
            memory.sigma_prompt = SIGMA_PROMPT
        return replace(step, prompts=prompts)

    def modify(self, step: Step) -> Step:
        """The step with guided latents.

        Raises:
            ValueError: the prediction and the latents differ in shape, or rounds are not supported.
        """
        if not step.is_last:
            continue_from_here(step.pipeline.scheduler)
        generator = self._generator or local_of(step.pipeline, "generator")
        prediction, network = self._prediction(step), self._network
        step = replace(step, prediction=prediction, network=network, generator=generator)
        self.is_guided = True
        remark = ""
        if self._undistilled == AUTO and network is not None and network.is_undistilled:
            remark = "; LoRAs are off in the rounds (undistilled=None or --undistilled none: on)"
        return self.engine.modify(step, remark)

    def why_unguided(self, step: Step | None) -> str | None:
        """The reason why no step of the call was guided; None if one was, or if it is off.

        Args:
            step: the last step; None if the pipeline did not call its callback.
        """
        if self.is_guided or self.settings.is_off:
            return None
        if step is None:
            return "the pipeline did not call its callback"
        if step.count == 1:
            return "it has one step, after which nothing is left to guide: use more steps"
        scheduler = type(step.pipeline.scheduler).__name__
        if self._watch is not None and not self._watch.steps:
            return f'its {scheduler} made no step, perhaps a copy did: use preset="published"'
        return f"{scheduler} would have discarded each change"

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
        watch = self._watch
        if watch is not None and watch.scheduler is pipeline.scheduler and watch.is_here():
            return watch.steps > 0
        self.close()
        watch = Watch(pipeline.scheduler, RunningCall(pipeline).is_here)
        if isinstance(self.settings, Rounds):
            every = cfg_every(self.settings)
            self._network = Network(pipeline, watch, self._undistilled, every).start()
        self._watch = watch.start()
        return False
