"""What guidance does in one call of a sampler, in diffusers, ComfyUI or elsewhere."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from vendi_guidance.guidance import budget, inside, own_steps, perturbed, rounds, timing
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

logger = logging.getLogger(__name__)


class Engine:
    """Guidance of one call.

    Args:
        settings: the call's settings.
        memory: the finished samples; one memory may serve many calls.

    Attributes:
        moves: those made inside the network; None before they begin, and where there are none.
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
        self._score: Score | None = None
        self._rounds_are_made = self._is_alone = False
        self.moves: inside.Moves | None = None
        self.why_off: str | None = None
        is_automatic = (
            isinstance(settings, Rounds)
            and (settings.proposal, settings.rounds, settings.candidates) == (None, None, None)
            and settings.space == Rounds.space
            and memory.exemplars is None
        )
        # None until the network has been seen
        is_inside = isinstance(settings, Rounds) and settings.proposal == "network"
        self._moves_inside = None if is_automatic and not settings.is_off else is_inside
        self._is_pending = False  # a published step that was due and could not be made yet

    def is_due(self, step: Step) -> bool:
        """Whether this step is to be modified. Rounds need a step with its `network`."""
        if self.settings.is_off or (step.is_last and step.has_fixed_end):
            return False
        if isinstance(self.settings, Rounds) and self.settings.proposal == "steps":
            return own_steps.is_due(step)
        if isinstance(self.settings, Rounds):
            if self._is_asked(step):
                return True
            if self._rounds_are_made or self._moves_inside:
                return not self._rounds_are_made and step.network is not None and not step.is_last
            return self.proposer(step, self.settings).is_due(step, self.settings)
        is_nth = step.index % self.settings.every == 0
        return not step.is_last and (self._is_pending or is_nth)

    def _is_asked(self, step: Step) -> bool:
        """Whether this step tells if rounds would lose the prompt of a distilled network."""
        network = step.network
        if self._moves_inside is not None or network is None or step.is_last:
            return False
        return network.has_blocks and network.has_prompt and timing.is_distilled(step)

    @torch.no_grad()
    def observe(self, step: Step) -> bool:
        """Record a step and return whether it `is_due`. A step that is due and is not modified
        makes the next one due. A call with CFG that begins at low noise is not guided."""
        network, settings = step.network, self.settings
        if settings.is_off:
            return False
        if self._moves_inside is None and network is not None and not self._is_asked(step):
            is_early = network.levels[0].ratio > inside.ABOVE
            has_cfg = timing.has_cfg(network)
            if network.has_blocks and has_cfg and not is_early and isinstance(settings, Rounds):
                return self._leave(LOW_NOISE)
            # in short calls such moves lose much of what prompts say
            joint = network.has_text_block and step.count > timing.FEW
            is_inside = is_early and network.has_blocks
            if is_inside and not joint:
                is_inside = has_cfg and bool(inside.needs_cfg(network.denoised))
            if is_inside and has_cfg:
                is_inside = network.without_prompts() is not None
            self._moves_inside = is_inside
        self._is_pending = self.is_due(step)
        is_guided = self._is_pending or self._rounds_are_made or self._moves_inside
        if step.has_fixed_end and step.index + 2 >= step.count and not is_guided:
            return self._leave(FIXED_END)
        return self._is_pending

    def _leave(self, why: str) -> bool:
        """Make no guidance in this call."""
        if isinstance(self.settings, Rounds):
            logger.info("not guided: %s", why)
            self.settings, self.why_off = replace(self.settings, diversity=0.0), why
        return False

    def is_undecided(self, step: Step) -> bool:
        """Whether the next step may reuse this one's prediction, since rounds follow later."""
        settings = self.settings
        if isinstance(settings, Rounds) and settings.proposal == "steps":
            return False
        is_over = self._rounds_are_made or self._moves_inside
        if not isinstance(settings, Rounds) or settings.is_off or is_over:
            return False
        is_gradient = self.proposer(step, settings) is PROPOSERS["gradient"]
        return is_gradient and timing.is_undecided(step, settings)

    @torch.no_grad()
    def modify(self, step: Step) -> Step:
        """The step with guided latents. ValueError if the samples do not fit the memory's, or
        rounds cannot be made."""
        self._rounds_are_made, self._is_pending = True, False
        if isinstance(self.settings, Published):
            score = self._score_of(step)
            moved = score.move(step.latents, score.gradient(step), self.settings.scale)
            return replace(step, latents=moved)
        if self.settings.proposal == "steps":
            return own_steps.move(step, self._score_of(step), self.settings)
        settings, network = self.settings, timing.network_of(step)
        is_distilled, proposer = timing.is_distilled(step), self.proposer(step, settings)
        was_open = self._moves_inside or self._is_asked(step)
        step, proposed = self.begin(step)
        if was_open:
            self._rounds_are_made = bool(self._moves_inside) or proposer.is_due(step, settings)
        if self._moves_inside or not self._rounds_are_made:
            return step
        if is_distilled:
            _log_few_steps(step, settings, proposer)
        else:
            stock = step.count * network.evaluations_per_step
            made = budget.own_evaluations(step, settings) + self.evaluations(step)
            if (times := made / stock) > 1:
                logger.info("%.3g times the stock call's evaluations of the network", times)
        known = [proposed] if proposed else []
        return proposer.repeat(step, self._score_of(step), settings, *known)

    def _score_of(self, step: Step) -> Score:
        if self._score is None:
            self._score = self.memory.score(self.settings, step.prompts)
        return self._score

    @torch.no_grad()
    def begin(self, step: Step) -> tuple[Step, tuple[Tensor, Tensor] | None]:
        """The step with moves inside the network, where they are made after `observe`; and what a
        perturbed prompt proposed, if that was asked."""
        score, settings, proposed = self._score_of(step), self.settings, None
        if self._is_asked(step):
            network = timing.network_of(step)
            if network.is_undistilled:
                self._moves_inside = bool(inside.needs_cfg(perturbed.propose(step, sigma=0)[1]))
            elif inside.needs_cfg(network.denoised):
                self._moves_inside = True
            else:
                proposed = perturbed.propose(step)
                self._moves_inside = inside.is_varied(step, score, proposed[1])
        if self._moves_inside and isinstance(settings, Rounds):
            step = self._move_inside(step, score, settings) or step
        return step, proposed

    def _move_inside(self, step: Step, score: Score, settings: Rounds) -> Step | None:
        """The step with moves inside the network. If none can be made, None where rounds are made
        instead, else ValueError."""
        begun = None if score.exemplars else inside.begin(step, score, settings)
        if begun is not None:
            self.moves, step = begun
            self._is_alone = not self.moves.has_direction
            if self._is_alone:
                logger.info("as without guidance: there is no other image to move away from yet")
            else:
                logger.info('moves inside the network (proposal="gradient": rounds)')
            return step
        if settings.proposal is None:
            self._moves_inside = False
            return None
        raise ValueError(
            'proposal="network" needs no exemplars, and a network with a known block that moves '
            "its prediction: leave it out"
        )

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
        if isinstance(self.settings, Rounds) and self.settings.proposal == "steps":
            return 1.0
        if self._moves_inside and not self._is_alone:
            return float(level.ratio > inside.CFG_STOP)
        if self.moves is not None or self.settings.is_off:  # without guidance
            return 1.0
        if isinstance(self.settings, Rounds) and (are_made or self._rounds_are_made):
            return timing.share_of_cfg(level.ratio, self.settings)
        return 0.0

    def remember(self, step: Step) -> None:
        """Add the finite samples of a call's last step to the memory."""
        features = self.settings.build_space().remember(step.pipeline, step.latents)
        for seen in self.moves.seen if self.moves else ():
            if len(seen) == len(step.latents):
                self.memory.add(seen, step.prompts)
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
