"""What guidance costs a GPU beside the network: kernels and waits, counted on a CPU."""

import pytest
import torch

from tests.guidance.test_engine import BlackOrWhite
from tests.helpers.launches import Launches
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.facts import Facts
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import OBJECTIVES, Published, Rounds
from vendi_guidance.guidance.step import Prediction, Step
from vendi_guidance.guidance.ways.own_steps import OwnSteps
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.functional import conditional_rke, rke

TINY = 4, 8, 8
MOST = {"rke": 29, "conditional-rke": 29, "vendi": 50, "conditional-vendi": 50}


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
def test_rounds_and_own_steps_launch_few_kernels_and_wait_for_none(objective, batch):
    settings, network = Rounds(objective=objective, sigma_prompt=0.3), BlackOrWhite(9.0, 8.0)
    network.denoised = torch.randn(batch, *TINY)
    step = drawn(batch, TINY, network=network, prediction=Prediction(network.denoised, 1.0, 8.0))
    score = filled(9, TINY).score(settings, step.prompts)
    moves = OwnSteps(Facts.of(step, score, settings), settings)
    moves.on_step(step)  # compares the prompts, once a call
    gradient, whole = counted(score.gradient, step), counted(moves.on_step, step)
    assert gradient.kernels <= MOST[objective] and whole.kernels <= gradient.kernels + 80
    assert gradient.waits == whole.waits == 0


@pytest.mark.parametrize(("score", "most"), [(rke, 11), (conditional_rke, 23)])
def test_a_tile_of_a_kernel_matrix_launches_few_kernels_and_waits_for_none(score, most):
    def of(tiles):
        inputs = [torch.randn(512 * tiles, 8)] * (2 if score is conditional_rke else 1)
        return counted(score, *inputs, *[Gaussian(4.0)] * len(inputs))

    three, six = of(2), of(3)
    assert six.kernels - three.kernels <= 3 * most and six.waits == three.waits
