"""Scores, gradients and windows are the same whatever torch is set to around them."""

from contextlib import contextmanager
from functools import partial
from itertools import product
from threading import Barrier, Thread

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.helpers.every_score import NAMES, WITH_PROMPTS, scores_of
from vendi_guidance.adapter.image_space import ImageSpace
from vendi_guidance.evaluation.embedding import Embedding
from vendi_guidance.evaluation.evaluator import evaluate
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import load_probe
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.objectives import OBJECTIVES
from vendi_guidance.guidance.settings import Published
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.precision import full_precision, isolated
from vendi_guidance.kernels.standard import Cosine, Gaussian
from vendi_guidance.scores import alignment, references
from vendi_guidance.scores.bandwidth import median_distance
from vendi_guidance.scores.functional import vendi
from vendi_guidance.scores.intervals import convergence
from vendi_guidance.scores.metrics import ConditionalVendiScore
from vendi_guidance.scores.modes import find_modes
from vendi_guidance.scores.spectra import Exact, RandomFourier

PRECISIONS = {
    "generic": lambda it: setattr(torch.backends, "fp32_precision", it),
    "cuda": lambda it: setattr(torch.backends.cuda.matmul, "fp32_precision", it),
    "cpu": lambda it: setattr(torch.backends.mkldnn.matmul, "fp32_precision", it),
}


@contextmanager
def ambient(change, *before):
    """A setting of the process, and what undoes it."""
    change()
    try:
        yield
    finally:
        for undo in before:
            undo()


def defaults(dtype):
    return ambient(
        lambda: torch.set_default_dtype(dtype), lambda: torch.set_default_dtype(torch.float32)
    )


def deterministic():
    use = torch.use_deterministic_algorithms
    return ambient(lambda: use(True), lambda: use(False))


def products_in(precision, of="older"):
    older = torch.set_float32_matmul_precision
    undone = [partial(it, "none") for it in PRECISIONS.values()]
    return ambient(lambda: PRECISIONS.get(of, older)(precision), lambda: older("highest"), *undone)


AMBIENT = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "float64 by default": lambda: defaults(torch.float64),
    "bfloat16 by default": lambda: defaults(torch.bfloat16),
    "another device by default": lambda: torch.device("meta"),
    "inference mode": torch.inference_mode,
    "gradients": torch.enable_grad,
    "deterministic algorithms": deterministic,
    "bfloat16 products": lambda: products_in("medium"),
    "bfloat16 products on CPUs": lambda: products_in("bf16", "cpu"),
}
everywhere = pytest.mark.parametrize("around", AMBIENT)

X, T = (torch.randn(48, d, generator=torch.Generator().manual_seed(d)) for d in (96, 64))
X.requires_grad_()
PROMPTS = [f"prompt {row % 6}" for row in range(len(X))]
IMAGES = np.random.default_rng(0).integers(0, 256, (24, 64, 64, 3), dtype=np.uint8)
PIXELS = torch.tensor(IMAGES[:2]).permute(0, 3, 1, 2) / 255


PROMPT_EMBEDDERS = "sdxl:assets/demo-sdxl", "words"


def scores():
    kernels = Gaussian(12.0), Cosine()
    for name in NAMES:
        yield scores_of(48)[name](X, T, *kernels, Exact())
    for name in WITH_PROMPTS:
        yield scores_of(48)[name](X, T, *kernels[:1] * 2, RandomFourier(64))
    yield from (Exact().eigenvalues(X, kernel) for kernel in kernels)
    yield from (kernel(X[:9], X[3:]) for kernel in kernels)
    yield from (kernel.gram(X) for kernel in kernels)
    yield [mode.loadings for mode in find_modes(X, kernels[0], count=3)]
    yield alignment.group_vendi(X, PROMPTS), alignment.in_batch_similarity(X, PROMPTS)
    yield alignment.clip_score(X[:, :64], T).mean(), median_distance(X)
    yield references.kernel_distance(X[:20], X[20:]), references.frechet_distance(X[:20], X[20:])
    yield references.manifold_scores(X[:20], X[20:])
    yield convergence(lambda rows: vendi(X[rows], kernels[0]), 48, sizes=[4, 9]).mean


def metrics():
    for spectrum in (Exact(), RandomFourier(64)):
        with torch.device("cpu"):
            metric = ConditionalVendiScore(Gaussian(12.0), Gaussian(9.0), spectrum=spectrum)
        yield metric(X[:20], T[:20])
        metric.update(X[20:], T[20:])
        yield metric.compute()


def guided():
    z, prompts = X[:5].view(5, 6, 4, 4), T[:5]
    for name in OBJECTIVES:
        settings = Published(objective=name, sigma_latent=None, beta=0.5)
        memory = Memory(SlidingWindow(9), X[20:30].view(-1, 6, 4, 4))
        memory.add(X[30:40].view(-1, 6, 4, 4), T[30:40])
        with torch.inference_mode(False):  # later calls write outside of it, too
            memory.add(X[40:].view(-1, 6, 4, 4), T[40:])
        score = memory.score(settings, prompts)
        yield memory.window.distances, memory.window.features, memory.window.prompts
        yield score.objective.gradient(z, prompts, memory.window)
        yield score.objective.similarity(prompts, z)
        yield score.move(z, X[5:10], 0.1)


def features():
    images = [Image.fromarray(image) for image in IMAGES]
    with torch.device("cpu"):  # transformers loads weights, and puts tokens, where torch says
        network = load_probe("assets/demo-probe")
        found = [open_prompt_embedder(it).embed(PROMPTS) for it in PROMPT_EMBEDDERS]
        pictures = [open_image_embedder(it) for it in ("probe:assets/demo-probe", "pixels:8")]
    yield found, network.looks(images)
    yield ImageSpace(network.body).of_pictures(PIXELS)
    yield [embedder.embed(images) for embedder in (network, *pictures)]


def report():
    found = evaluate(IMAGES, PROMPTS[:24], embedding=Embedding("pixels:8", "words"))
    yield {name: score.value for name, score in found.scores.items()}


def same(one, other):
    if isinstance(one, Tensor):
        assert not one.requires_grad
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize("what", [scores, metrics, guided, features, report])
@everywhere
def test_what_is_set_around_changes_no_number(what, around):
    expected = list(what())
    with AMBIENT[around]():
        found = list(what())
    bad = [i for i, pair in enumerate(zip(found, expected, strict=True)) if not same(*pair)]
    assert not bad, bad


OTHERS = "generic", "cpu"


def precisions():
    try:
        of_all = torch.get_float32_matmul_precision()
    except RuntimeError:  # set for a backend
        of_all = None
    backends = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul, torch.backends.mkldnn.conv
    return of_all, *(it.fp32_precision for it in backends)


@pytest.mark.parametrize(
    ("precision", "of"),
    [*product(["high", "medium"], ["older"]), ("tf32", "cuda"), *product(["tf32", "bf16"], OTHERS)],
)
def test_the_precision_of_products_is_restored_once_no_thread_needs_it(precision, of):
    exact, seen, barrier = ("highest", "ieee"), [], Barrier(2)

    def other():
        with isolated():
            barrier.wait()
            barrier.wait()
            seen.append(precisions())

    with products_in(precision, of):
        before, thread = precisions(), Thread(target=other)
        thread.start()
        with isolated(), full_precision():
            barrier.wait()
            seen.append(precisions())
        barrier.wait()
        thread.join()
        assert precisions() == before
        assert [set(found) <= {*exact} for found in seen] == [True, True]
        with pytest.raises(KeyError), isolated():
            raise KeyError
        assert precisions() == before
        torch.backends.fp32_precision = "ieee"  # what followed it still does
        assert (precisions()[1:] == ("ieee",) * 3) == (of == "generic")


def test_autocast_of_any_device_is_off_and_comes_back():
    with (
        torch.autocast("cpu"),
        ambient(
            lambda: torch.set_autocast_enabled("cuda", True),
            lambda: torch.set_autocast_enabled("cuda", False),
        ),
    ):
        with isolated():
            assert not torch.is_autocast_enabled("cpu") and not torch.is_grad_enabled()
            assert torch.is_autocast_enabled("cuda") == (torch.version.cuda is None)
        assert torch.is_autocast_enabled("cpu") and torch.is_autocast_enabled("cuda")
