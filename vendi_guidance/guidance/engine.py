"""What guidance does in one call, whichever program makes it.

The diffusers callback, the block of modular pipelines and the ComfyUI node each read a sampler in
their own way, describe its steps as `Step`, and do what an `Engine` says. It needs none of them.
"""

import logging
from types import ModuleType

from vendi_guidance.guidance import nearby, published, rounds
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.score import Score
from vendi_guidance.guidance.settings import Published, Rounds
from vendi_guidance.guidance.step import Level, Step

WAYS: dict[str, ModuleType] = {"gradient": rounds, "prompt": nearby}
"""What can propose moves, by the names that the settings have for it: each a module with the
functions `is_due`, `repeat` and `evaluations`."""

logger = logging.getLogger(__name__)


class Engine:
    """Guidance of one call.

    Args:
        settings: of the call.
        memory: of finished samples; it may serve many calls.

    Example:
        >>> import torch
        >>> settings = Published(objective="rke", scale=0.1)
        >>> engine = Engine(settings, Memory(window=9))
        >>> step = Step(index=0, count=2, latents=torch.randn(4, 3, 8, 8))
        >>> if engine.is_due(step):
        ...     step = engine.modify(step)
        >>> engine.remember(step)
        >>> len(engine.memory.window)
        4
    """

    def __init__(self, settings: Rounds | Published, memory: Memory) -> None:
        self.settings = settings
        self.memory = memory
        self._score: Score | None = None
        self._rounds_are_made = False
        self._is_pending = False  # a step of guidance as published

    def is_due(self, step: Step) -> bool:
        """Whether this step is to be modified; for rounds, a step with its `network`."""
        if self.settings.scale == 0:
            return False
        if isinstance(self.settings, Rounds):
            way = WAYS[self.proposal(step, self.settings)]
            return not self._rounds_are_made and way.is_due(step, self.settings)
        return not step.is_last and (self._is_pending or published.is_due(step, self.settings))

    def observe(self, step: Step) -> bool:
        """Take note of a step; one that is due, and not modified, is due again at the next. Returns
        whether it `is_due`."""
        self._is_pending = self.is_due(step)
        return self._is_pending

    def modify(self, step: Step, remark: str = "") -> Step:
        """The step with guided latents.

        Args:
            step: with a prediction and the network where the settings need them.
            remark: ends the line that is logged for a call of few steps.

        Raises:
            ValueError: samples that do not fit the memory's, or rounds that cannot be made.
        """
        if self._score is None:
            self._score = self.memory.score(self.settings, step.prompts)
        self._rounds_are_made, self._is_pending = True, False
        if isinstance(self.settings, Published):
            return published.ascend(step, self._score, self.settings)
        proposal = self.proposal(step, self.settings)
        if rounds.is_distilled(step):
            _say_what_is_done(step, self.settings, proposal, remark)
        elif (cost := self._cost(step, self.settings)) > 1:
            logger.info("%.3g times the stock call's evaluations of the network", cost)
        return WAYS[proposal].repeat(step, self._score, self.settings)

    @staticmethod
    def proposal(step: Step, settings: Rounds) -> str:
        """What proposes the moves of a call with this step."""
        if settings.proposal is not None:
            return settings.proposal
        network = step.network if rounds.is_distilled(step) else None
        asks = network is not None and network.has_prompt and not network.is_undistilled
        return "prompt" if asks else "gradient"

    def _cost(self, step: Step, settings: Rounds) -> float:
        """Evaluations of the network in this call, as a multiple of the stock call's."""
        stock = step.count * rounds.network_of(step).evaluations_per_step
        return (rounds.own_evaluations(step, settings) + self.evaluations(step)) / stock

    def evaluations(self, step: Step) -> int:
        """How many times `modify` evaluates the network for each sample at this step."""
        if not isinstance(self.settings, Rounds):
            return 0
        way = WAYS[self.proposal(step, self.settings)]
        return way.evaluations(step, self.settings)

    def share_of_cfg(self, level: Level, are_made: bool = False) -> float:
        """The share of classifier-free guidance at a step that begins at this level: a scale w
        becomes 1 + share (w - 1). To be followed where the settings have rounds.

        Args:
            level: before the step.
            are_made: True once the rounds have run or are scheduled before this step.
        """
        if not isinstance(self.settings, Rounds):
            return 0.0
        are_made = are_made or self._rounds_are_made
        return rounds.share_of_cfg(level.ratio, self.settings) if are_made else 0.0

    def remember(self, step: Step) -> None:
        """Let the samples of a call's last step enter the memory, except those that hold NaN or
        infinity."""
        features = self.settings.build_space().remember(step.pipeline, step.latents)
        self.memory.add(features, step.prompts)


def _say_what_is_done(step: Step, settings: Rounds, proposal: str, remark: str) -> None:
    proposer = {"prompt": "a prompt nearby", "gradient": "the score's gradient"}[proposal]
    ratio, wanted = rounds.level_of(step, settings).ratio, rounds.wanted_ratio(step, settings)
    less = f", the highest there is ({wanted:.3g} is wanted)" if ratio < 0.99 * wanted else ""
    done = f"{proposer} proposes at noise to signal {ratio:.3g}{less}"
    logger.info("%d steps without CFG: %s%s", step.count, done, remark)
