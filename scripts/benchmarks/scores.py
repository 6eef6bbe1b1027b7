"""Time and peak memory of the methods for each score, compared with the linear algebra they need.

For each method and number of items n: seconds, peak memory beyond the features, and the ratio to
the time of the bare matrix products and eigvalsh calls, measured alternately in the same run.
Approximations are compared with the exact score instead, in time and in value. Features are random
in single precision: images in 50 clusters of 768 dimensions, prompts in 50 clusters of 512.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from scripts.benchmarks.measuring import Task, measure, ratio
from vendi_guidance.kernels.base import CHUNK, upper_triangle
from vendi_guidance.kernels.standard import Gaussian, Product
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.functional import conditional_rke, conditional_vendi, rke, vendi
from vendi_guidance.scores.linalg import to_precise
from vendi_guidance.scores.spectra import Exact, RandomFourier

D, M, CLUSTERS = 768, 512, 50
KERNEL_X, KERNEL_T = Gaussian(25.0), Gaussian(20.0)
TRUNCATION = 100
PRODUCTS = "products, upper triangle"


@dataclass
class Sample:
    """Features x, (n, 768) of n items, and t, (n, 512) of their prompts."""

    x: Tensor
    t: Tensor

    @property
    def fourier_features(self) -> int:
        """2r, the number of FKEA's random features."""
        return 16_000 if len(self.x) > 100_000 else min(4_000, len(self.x))

    @cached_property
    def matrix(self) -> Tensor:
        """K / n, in the precision that `Exact` decomposes it in."""
        return to_precise(KERNEL_X.gram(self.x).div_(len(self.x)))


@dataclass(frozen=True)
class Method:
    """A method for a score, and the baseline that it is measured against."""

    name: str
    run: Callable[[Sample], Tensor]
    baseline: Callable[[Sample], Any]
    baseline_name: str


def upper_products(*features: Tensor) -> None:
    for rows, columns in upper_triangle(features[0]):
        for z in features:
            z[rows] @ z[columns].T


def products_and_eigvalsh(sample: Sample, *features: Tensor) -> None:
    for z in features:
        z @ z.T
        torch.linalg.eigvalsh(sample.matrix)


def fourier_products(sample: Sample) -> None:
    r = sample.fourier_features // 2
    frequencies = torch.randn(D, r, device=sample.x.device)
    total = frequencies.new_zeros(2 * r, 2 * r)
    for chunk in sample.x.split(CHUNK):
        z = (chunk @ frequencies).repeat(1, 2)
        total += z.T @ z


def conditional(sample: Sample, truncation: int | None = None) -> Tensor:
    return conditional_vendi(sample.x, sample.t, KERNEL_X, KERNEL_T, truncation=truncation)


def truncated_from_all_eigenvalues(sample: Sample) -> Tensor:
    entropy = Entropy(truncation=TRUNCATION)
    both = torch.cat([sample.x, sample.t], dim=1)
    joint = Exact().eigenvalues(both, Product(KERNEL_X, KERNEL_T, split=D))
    return (entropy.of(joint) - entropy.of(Exact().eigenvalues(sample.t, KERNEL_T))).exp()


def exact_vendi(sample: Sample) -> Tensor:
    return vendi(sample.x, KERNEL_X)


def vendi_score_package(sample: Sample) -> Tensor:
    from vendi_score import vendi as package

    return torch.tensor(package.score_K(KERNEL_X.gram(sample.x).cpu().numpy()))


METHODS = {
    "rke": Method("RKE", lambda s: rke(s.x, KERNEL_X), lambda s: upper_products(s.x), PRODUCTS),
    "conditional-rke": Method(
        "Conditional-RKE",
        lambda s: conditional_rke(s.x, s.t, KERNEL_X, KERNEL_T),
        lambda s: upper_products(s.x, s.t),
        PRODUCTS,
    ),
    "vendi": Method(
        "Vendi", exact_vendi, lambda s: products_and_eigvalsh(s, s.x), "product + eigvalsh"
    ),
    "conditional-vendi": Method(
        "Conditional-Vendi",
        conditional,
        lambda s: products_and_eigvalsh(s, s.x, s.t),
        "2 products + 2 eigvalsh",
    ),
    "truncated": Method(
        f"Conditional-Vendi, t = {TRUNCATION}",
        lambda s: conditional(s, TRUNCATION),
        truncated_from_all_eigenvalues,
        "exact, all eigenvalues",
    ),
    "fkea": Method(
        "Vendi, FKEA",
        lambda s: vendi(s.x, KERNEL_X, spectrum=RandomFourier(s.fourier_features)),
        fourier_products,
        "feature + covariance products",
    ),
}
if find_spec("vendi_score"):
    package = "Vendi, vendi-score package"
    METHODS["vendi-score"] = Method(package, vendi_score_package, exact_vendi, "exact, ours")


SIZES = {
    4_000: [name for name in METHODS if name != "fkea"],
    50_000: ["rke", "conditional-rke", "fkea"],
    250_000: ["conditional-rke", "fkea"],
}
"""Number of items -> methods to measure."""


def tasks(device: torch.device, tiny: bool) -> Iterator[Task]:
    """The methods, on a CPU with up to 50,000 items, and a fused tile."""
    on_cpu = device.type == "cpu"
    for n, names in ({200: ["rke", "vendi", "fkea"]} if tiny else SIZES).items():
        for name in names if n < 100_000 or not on_cpu else ():
            about = {"n": n, "method": METHODS[name].name}
            yield Task("Scores", about, partial(row, METHODS[name], n, device))
    side, backend = (64, "eager") if tiny else (512 if on_cpu else 4096, "inductor")
    about = {"rows": side}
    yield Task("A tile fused by torch.compile", about, partial(fused, side, device, backend))


@lru_cache(maxsize=1)
def make_sample(n: int, device: torch.device) -> Sample:
    generator = torch.Generator().manual_seed(0)

    def clusters(width: int) -> Tensor:
        centres = torch.randn(CLUSTERS, width, generator=generator)
        chosen = torch.randint(CLUSTERS, (n,), generator=generator)
        return (centres[chosen] + 0.5 * torch.randn(n, width, generator=generator)).to(device)

    return Sample(clusters(D), clusters(M))


def row(method: Method, n: int, device: torch.device) -> dict[str, object]:
    """The times; the difference is the relative error of an approximation."""
    sample = make_sample(n, device)
    if method.baseline_name.endswith("eigvalsh"):
        _ = sample.matrix  # computed here so that it is not timed
    functions = partial(method.run, sample), partial(method.baseline, sample)
    run, baseline = measure(functions, device)
    is_approximate = method.baseline_name.startswith("exact")
    return {
        "seconds": run.seconds,
        "peak MiB": run.peak,
        "baseline": method.baseline_name,
        "baseline, s": baseline.seconds,
        "ratio": ratio(run, baseline),
        "difference": f"{float(run.result / baseline.result) - 1:+.1e}" if is_approximate else "",
    }


def fused(side: int, device: torch.device, backend: str) -> dict[str, object]:
    """A tile of a kernel matrix, as it is and with its elementwise operations fused."""
    tile, own = KERNEL_X.blocks(make_sample(side, device).x), slice(0, side)
    compiled = torch.compile(tile, backend=backend)
    compiled(own, own)
    functions = [partial(it, own, own) for it in (tile, compiled)]
    one, other = measure(functions, device, least=5, most=100)
    return {"plain, s": one.seconds, "fused, s": other.seconds, "faster": ratio(one, other)}
