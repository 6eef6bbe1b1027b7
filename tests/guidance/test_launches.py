"""What guidance costs a GPU beside the network: kernels and waits, counted on a CPU."""

import pytest
import torch

from tests.helpers.launches import Launches
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.inside import Moves
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import OBJECTIVES, Published, Rounds
from vendi_guidance.guidance.step import Prediction, Step
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.functional import conditional_rke, rke

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
def test_rounds_and_moves_inside_the_network_launch_few_kernels_and_wait_for_none(objective, batch):
    step, settings = drawn(batch, TINY), Rounds(objective=objective, sigma_prompt=0.3)
    score = filled(9, TINY).score(settings, step.prompts)
    at = drawn(batch, TINY, prediction=Prediction(step.latents, 0.6, 0.8))
    moves, h = Moves(score, step), torch.randn(2 * batch, 32, 8, 8)
    own, other, candidates = slice(batch, None), slice(batch), torch.randn(2, batch, *TINY)

    def both(when):
        return counted(score.gradient, at), counted(moves.move, h, own, when, 9.0)

    assert [seen.waits for seen in both("first")] == [0, 0]
    later = both("later")  # prompts are compared, once a call
    for seen in (*later, counted(score.choose, at, candidates, candidates)):
        assert seen.kernels <= MOST[objective] + 12 and seen.waits == 0
    # the same move of the rows without prompts, where they are evaluated apart
    assert counted(moves.move, h, other, "later", 9.0).kernels <= 12


@pytest.mark.parametrize(("score", "most"), [(rke, 11), (conditional_rke, 23)])
def test_a_tile_of_a_kernel_matrix_launches_few_kernels_and_waits_for_none(score, most):
    def of(tiles):
        inputs = [torch.randn(512 * tiles, 8)] * (2 if score is conditional_rke else 1)
        return counted(score, *inputs, *[Gaussian(4.0)] * len(inputs))

    three, six = of(2), of(3)
    assert six.kernels - three.kernels <= 3 * most and six.waits == three.waits


def test_memory_for_sdxl_of_finished_samples_is_at_most_120_mb_beyond_the_windows_80():
    """The formula of docs/benchmarks.md, at a sixteenth of SDXL's numbers per sample."""

    def remembered(n, numbers, channels, width, levels):
        return 4 * n * numbers, levels * n * (32 * channels + 4 * width + 4 * n)

    batch, window, shape, channels = 8, 30, (4, 32, 32), 80
    memory, step = Memory(window), drawn(batch, shape)
    moves = Moves(memory.score(Rounds(), step.prompts), step)
    for _ in range(4):  # more than there is room for
        memory.add(step.latents, step.prompts)
        for at in range(25):  # steps of SDXL above the level below which none is moved
            moves.move(torch.randn(batch, channels, 8, 8), slice(batch), at, 14.6 * 0.95**at)
        for seen in moves.seen:
            memory.add(seen, step.prompts)
    held, others = remembered(window, 4096, channels, 64, len(moves.seen))
    samples = [memory.window.of_shape(it) for it in memory.window.shapes]
    tensors = [it for one in samples for it in (one._features.rows, one._features.inner)]
    tensors += [one.prompts for one in samples]
    beside = 4 * window * (64 + window)  # prompts and products of latents
    assert sum(it.nbytes for it in tensors) == held + others + beside

    held, others = remembered(300, 4 * 128 * 128, 1280, 1280, len(moves.seen))
    assert len(moves.seen) == 8 and held < 80e6 and others < 120e6
