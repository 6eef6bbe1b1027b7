"""What guidance does in one call of a sampler, in diffusers, ComfyUI or elsewhere."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch

from vendi_guidance.guidance import budget, own_steps, perturbed, rounds, timing
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.score import Score
from vendi_guidance.guidance.settings import Published, Rounds
from vendi_guidance.guidance.step import Level, Step


class Proposer(NamedTuple):
    """What proposes the moves of rounds."""

    title: str
    is_due: Callable[[Step, Rounds], bool]
    repeat: Callable[..., Step]
    evaluations: Callable[[Step, Rounds], int]


PROPOSERS = {
    "gradient": Proposer("the score's gradient", timing.is_due, rounds.repeat, rounds.evaluations),
    "prompt": Proposer("a perturbed prompt", perturbed.is_due, perturbed.repeat, lambda *_: 2),
}

LOW_NOISE = 'it begins where the image is decided: raise strength, or proposal="gradient"'
FIXED_END = "rounds cannot follow its last step, which a mask or a prediction ends: use more steps"

ALONE = "there is no other image to move away from yet"

logger = logging.getLogger(__name__)


class Engine:
    """Guidance of one call.

    Args:
        settings: the call's settings.
        memory: the finished samples; one memory may serve many calls.

    Attributes:
        is_decided: whether it is known how this call is guided.
        why_off: why this call is not guided although the settings ask for it, or None.

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
        self.why_off: str | None = None
        self._score: Score | None = None
        self._own_steps: own_steps.OwnSteps | None = None
        self._rounds_are_made = False
        self._is_pending = False  # a published step that was due and could not be made yet
        self.is_decided = True
        if isinstance(settings, Rounds):
            # with a number of rounds, rounds are wanted
            is_open = (settings.proposal, settings.rounds, settings.candidates) == (None,) * 3
            self.is_decided = settings.is_off or not (is_open or settings.proposal == "steps")

    @property
    def guides_own_steps(self) -> bool:
        """Whether samples are moved at the call's own steps."""
        return self._own_steps is not None

    def is_due(self, step: Step) -> bool:
        """Whether this step is to be modified. Rounds need a step with its `network`."""
        if self.settings.is_off or (step.is_last and step.has_fixed_end):
            return False
        if isinstance(self.settings, Published):
            is_nth = step.index % self.settings.every == 0
            return not step.is_last and (self._is_pending or is_nth)
        if self._own_steps is not None:
            return self._own_steps.is_due(step)
        proposer = self.proposer(step, self.settings)
        return not self._rounds_are_made and proposer.is_due(step, self.settings)

    @torch.no_grad()
    def observe(self, step: Step) -> bool:
        """Record a step and return whether it `is_due`. A step that is due and is not modified
        makes the next one due. A call with CFG that begins at low noise is not guided."""
        if self.settings.is_off:
            return False
        if isinstance(self.settings, Rounds) and not self.is_decided and step.network is not None:
            self.decide(step, self.settings)
        self._is_pending = self.is_due(step)
        is_guided = self._is_pending or self._rounds_are_made or self._own_steps is not None
        if step.has_fixed_end and step.index + 2 >= step.count and not is_guided:
            self._leave(FIXED_END)
        return self._is_pending

    def decide(self, step: Step, settings: Rounds) -> None:
        """Decide at the first step that is seen whether the call's own steps are guided, or rounds
        are made; see `OwnSteps.are_better`."""
        self.is_decided, network = True, timing.network_of(step)
        is_asked, is_late = settings.proposal == "steps", network.levels[0].ratio <= own_steps.ABOVE
        if is_late and (is_asked or timing.has_cfg(network)):
            return self._leave(LOW_NOISE)
        score = self._score_of(step)
        moves = own_steps.OwnSteps(step, score, settings)
        if is_asked or moves.are_better(step):
            if len(step.latents) == 1 and not len(score.window) and score.exemplars is None:
                return self._leave(ALONE)
            self._own_steps = moves
            logger.info('guided at %s (proposal="gradient": rounds)', self._own_steps)
        return None

    def _leave(self, why: str) -> None:
        """Make no guidance in this call."""
        if isinstance(self.settings, Rounds):
            logger.info("not guided: %s", why)
            self.settings, self.why_off = replace(self.settings, diversity=0.0), why

    def is_undecided(self, step: Step) -> bool:
        """Whether the next step may reuse this one's prediction, since rounds follow later."""
        settings = self.settings
        is_over = self._rounds_are_made or self._own_steps is not None
        if not isinstance(settings, Rounds) or settings.is_off or is_over:
            return False
        is_gradient = self.proposer(step, settings) is PROPOSERS["gradient"]
        return is_gradient and timing.is_undecided(step, settings)

    @torch.no_grad()
    def modify(self, step: Step) -> Step:
        """The step with guided latents. ValueError if the samples do not fit the memory's, or
        rounds cannot be made."""
        self._is_pending, score = False, self._score_of(step)
        if isinstance(self.settings, Published):
            moved = score.move(step.latents, score.gradient(step), self.settings.scale)
            return replace(step, latents=moved)
        if self._own_steps is not None:
            return self._own_steps.move(step)
        self._rounds_are_made = True
        settings, network = self.settings, timing.network_of(step)
        proposer = self.proposer(step, settings)
        if timing.is_distilled(step):
            _log_few_steps(step, settings, proposer)
        else:
            stock = step.count * network.evaluations_per_step
            made = budget.own_evaluations(step, settings) + self.evaluations(step)
            if (times := made / stock) > 1:
                logger.info("%.3g times the stock call's evaluations of the network", times)
        return proposer.repeat(step, score, settings)

    def _score_of(self, step: Step) -> Score:
        if self._score is None:
            self._score = self.memory.score(self.settings, step.prompts)
        return self._score

    @staticmethod
    def proposer(step: Step, settings: Rounds) -> Proposer:
        """What proposes the moves of a call with this step."""
        if settings.proposal in PROPOSERS:
            return PROPOSERS[settings.proposal]
        network = step.network if timing.is_distilled(step) else None
        by_prompt = network is not None and network.has_prompt and not network.is_undistilled
        return PROPOSERS["prompt" if by_prompt else "gradient"]

    def evaluations(self, step: Step) -> int:
        """How many times `modify` evaluates the network for each sample at this step."""
        if not isinstance(self.settings, Rounds):
            return 0
        return self.proposer(step, self.settings).evaluations(step, self.settings)

    def share_of_cfg(self, level: Level, are_made: bool = False) -> float:
        """The share of classifier-free guidance (CFG) at a step that begins at this level: a scale
        w becomes 1 + share (w - 1). `are_made` if rounds are scheduled before this step."""
        if self._own_steps is not None or self.settings.is_off:
            return 1.0
        if isinstance(self.settings, Rounds) and (are_made or self._rounds_are_made):
            return timing.share_of_cfg(level.ratio, self.settings)
        return 0.0

    def remember(self, step: Step) -> None:
        """Add the finite samples of a call's last step to the memory."""
        features = self.settings.build_space().remember(step.pipeline, step.latents)
        self.memory.add(features, step.prompts)


def _log_few_steps(step: Step, settings: Rounds, proposer: Proposer) -> None:
    network = timing.network_of(step)
    ratio = timing.level_of_rounds(step, settings).ratio
    wanted = timing.wanted_ratio(step, settings)
    less = f", the highest there is ({wanted:.3g} is wanted)" if ratio < 0.99 * wanted else ""
    if less and network.at(wanted).ratio > 1.01 * ratio:
        less = f", where this step begins ({wanted:.3g} is wanted)"
        if step.index == 0:
            less = f", where the schedule begins ({wanted:.3g} is wanted, and the model reaches it"
            less += ': use one from the highest noise, such as "simple" or trailing timesteps)'
    if network.is_undistilled:
        less += "; the undistilled network answers (its own with undistilled=None)"
    done = f"{proposer.title} proposes at noise to signal {ratio:.3g}{less}"
    logger.info("%d steps without CFG: %s", step.count, done)
