"""What guidance costs a GPU beside the network: kernels and waits, counted on a CPU."""

import pytest
import torch

from tests.helpers.launches import Launches
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.inside import Moves
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import OBJECTIVES, Published, Rounds
from vendi_guidance.guidance.step import Prediction, Step

TINY = 4, 8, 8
MOST = {"rke": 60, "conditional-rke": 60, "vendi": 82, "conditional-vendi": 82}


def drawn(batch, shape, **given):
    prompts = torch.eye(5, 64)[torch.arange(batch) % 5]
    return Step(0, 20, torch.randn(batch, *shape), prompts=prompts, **given)


def filled(size, shape, window=300):
    memory, step = Memory(window), drawn(size, shape)
    memory.add(step.latents, step.prompts)
    return memory


def counted(do, *given):
    with Launches() as seen:
        do(*given)
    return seen


@pytest.mark.parametrize("size", [0, 9, 300])
@pytest.mark.parametrize("batch", [4, 16])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_published_step_launches_few_kernels_whatever_the_batch_and_waits_for_none(
    objective, batch, size
):
    memory = filled(size, TINY) if size else Memory(300)
    engine = Engine(Published(objective=objective, sigma_prompt=0.3), memory)
    engine.modify(step := drawn(batch, TINY))  # compares the prompts, once a call
    seen = counted(engine.modify, step)
    assert seen.kernels <= MOST[objective] and seen.waits == 0


@pytest.mark.parametrize("batch", [4, 16])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradients_of_rounds_and_moves_inside_the_network_launch_few_kernels_and_wait_for_none(
    objective, batch
):
    step, settings = drawn(batch, TINY), Rounds(objective=objective, sigma_prompt=0.3)
    score = filled(9, TINY).score(settings, step.prompts)
    at = drawn(batch, TINY, prediction=Prediction(step.latents, 0.6, 0.8))
    moves, h = Moves(score, step), torch.randn(2 * batch, 32, 8, 8)
    own, other = slice(batch, None), slice(batch)

    def both(when):
        return counted(score.gradient, at), counted(moves.move, h, own, when, 9.0)

    assert [seen.waits for seen in both("first")] == [0, 0]
    for seen in both("later"):  # prompts are compared, once a call
        assert seen.kernels <= MOST[objective] + 14 and seen.waits == 0
    # the same move of the rows without prompts, where they are evaluated apart
    assert counted(moves.move, h, other, "later", 9.0).kernels <= 12
