"""What guidance keeps for one call of a pipeline, and lets go of at its end."""

from dataclasses import replace
from typing import Any

from vendi_guidance.guidance.ascent import Ascend
from vendi_guidance.guidance.classifier_free import DelayedCFG, can_delay_cfg, cannot_delay_cfg
from vendi_guidance.guidance.prediction import Prediction, Watch, continue_from_here
from vendi_guidance.guidance.renoise import Renoise
from vendi_guidance.guidance.settings import CFG_START, Settings
from vendi_guidance.guidance.step import Generator, Step


class Call:
    """One call of a pipeline, with its settings; `has_begun` once a step has been made.

    Raises:
        ValueError: the settings need what this pipeline or its scheduler do not offer.
    """

    def __init__(
        self, pipeline: Any, settings: Settings, generator: Generator, cfg: DelayedCFG
    ) -> None:
        self.settings = settings
        self.has_begun = False
        self._generator = generator
        self._is_guided = settings.scale > 0
        # in this order: guidance moves what renoising leaves
        self._modifiers = (Renoise(settings), Ascend(settings))
        self._cfg = cfg if self._delays_cfg(pipeline) else None
        self._watch: Watch | None = None
        # last, so that a call that is refused leaves the scheduler alone
        self._watches(pipeline)

    @property
    def delays_cfg(self) -> bool:
        """Whether CFG is off at the call's first steps."""
        return self._cfg is not None

    def close(self) -> None:
        """Let go of the scheduler."""
        if self._watch is not None:
            self._watch.stop()
        self._watch = None

    def due(self, step: Step) -> list[Renoise | Ascend]:
        """What is to modify this step; to be asked once at every step. Sets CFG for the next."""
        self.has_begun = True
        if self._cfg is not None:
            start = self.settings.cfg_start
            next_share = (step.index + 1) / step.count
            self._cfg.switch(step.pipeline, next_share >= (CFG_START if start is None else start))
        if not self._is_guided:
            return []
        is_predicted = self._watches(step.pipeline)
        due = [modifier for modifier in self._modifiers if modifier.is_due(step)]
        if not due or step.is_last or not is_predicted:
            return []
        return due if continue_from_here(step.pipeline.scheduler) else []

    def with_prediction(self, step: Step) -> Step:
        """The step with the prediction that the scheduler made in it, and the call's generator.

        Raises:
            ValueError: the prediction has another shape than the latents.
        """
        return replace(step, prediction=self._prediction(step), generator=self._generator)

    def _prediction(self, step: Step) -> Prediction | None:
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

    def _watches(self, pipeline: Any) -> bool:
        """Watch the scheduler if a prediction is needed; False if the last step was not watched."""
        if not (self._is_guided and self.settings.needs_prediction):
            return True
        if self._watch is not None and self._watch.scheduler is pipeline.scheduler:
            return self._watch.has_seen
        self.close()
        self._watch = Watch(pipeline.scheduler).start()
        return False

    def _delays_cfg(self, pipeline: Any) -> bool:
        start = self.settings.cfg_start
        if start == 0 or not self._is_guided:
            return False
        if start is None:
            return can_delay_cfg(pipeline)
        if not can_delay_cfg(pipeline):
            raise ValueError(cannot_delay_cfg(pipeline))
        return True
