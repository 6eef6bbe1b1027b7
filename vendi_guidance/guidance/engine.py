"""What guidance does in one call, whichever program makes it.

The diffusers callback, the block of modular pipelines and the ComfyUI node each read a sampler in
their own way, describe its steps as `Step`, and do what an `Engine` says. It needs none of them.
"""

from math import prod

from vendi_guidance.guidance.ascent import Ascend
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.rounds import Rounds
from vendi_guidance.guidance.settings import Settings
from vendi_guidance.guidance.step import Level, Step

CFG_STOP = 0.75
"""The noise-to-signal ratio below which CFG is off after rounds: it only makes pictures more
alike there (Kynkäänniemi et al., NeurIPS 2024)."""


class Engine:
    """Guidance of one call.

    Args:
        settings: of the call.
        memory: of finished samples; it may serve many calls.

    Example:
        >>> import torch
        >>> settings = Settings(objective="rke", scale=0.1, rounds=0, space="latent")
        >>> engine = Engine(settings, Memory(window=9))
        >>> step = Step(index=0, count=2, latents=torch.randn(4, 3, 8, 8))
        >>> if engine.is_due(step):
        ...     step = engine.modify(step)
        >>> engine.remember(step)
        >>> len(engine.memory.window)
        4
    """

    def __init__(self, settings: Settings, memory: Memory) -> None:
        self.settings = settings
        self.memory = memory
        self._modifier = Rounds(settings) if settings.rounds else Ascend(settings)

    def is_due(self, step: Step) -> bool:
        """Whether this step is to be modified; to be asked once at every step, with its `network`
        where the settings have rounds."""
        return self.settings.scale != 0 and self._modifier.is_due(step)

    def modify(self, step: Step) -> Step:
        """The step with guided latents.

        Args:
            step: with a prediction and the network where the settings need them.

        Raises:
            ValueError: samples that do not fit the memory's, or rounds that cannot be made.
        """
        return self._modifier(step, self.memory)

    def evaluations(self, step: Step) -> int:
        """How many times `modify` evaluates the network for each sample at this step."""
        modifier = self._modifier
        return prod(modifier.affordable(step)) if isinstance(modifier, Rounds) else 0

    def share_of_cfg(self, level: Level, are_made: bool = False) -> float:
        """The share of classifier-free guidance at a step that begins at this level: a scale w
        becomes 1 + share (w - 1). To be followed where the settings have rounds.

        Args:
            level: before the step.
            are_made: whether the rounds are made, or will be before this step, even if not here.
        """
        are_made = are_made or (isinstance(self._modifier, Rounds) and self._modifier.are_made)
        return self.settings.cfg if are_made and level.ratio > CFG_STOP else 0.0

    def remember(self, step: Step) -> None:
        """Let the samples of a call's last step enter the memory, except those that hold NaN or
        infinity."""
        features = self.settings.build_space().remember(step.pipeline, step.latents)
        self.memory.add(features, step.prompts)
