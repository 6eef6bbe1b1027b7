"""Calibration of a judge of attributes by a few labelled images.

A judge's probabilities p are corrected to q, with one scale a and a bias b_k for each value k:

    q_k ∝ p_k^a exp(b_k)

This is multinomial logistic regression on log p. The priors log a ~ N(0, 1) and b_k ~ N(0, 1) draw
it towards the judge as it is, a = 1 and b = 0: without labels nothing changes. What few labels
leave open stays open in the posterior, a normal distribution around the most probable correction
(Laplace's approximation), from which intervals are drawn. A bootstrap would not do: refits that
the prior holds in place agree the more, the fewer labels there are.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from torch import Tensor

SURE = 1e-4
"""No judge is believed to be surer than that: probabilities of 0 could not be corrected."""

FOLDS = 20
"""Of cross-validation; with at most as many labelled images, each is held out alone."""

DRAWN = 50
"""Corrections from the posterior."""


@dataclass(frozen=True)
class Agreement:
    """How well a judge agrees with labels.

    Attributes:
        accuracy: share of images whose most probable value is the label.
        log_loss: mean of -log of the label's probability, in nats.
    """

    accuracy: float
    log_loss: float


@dataclass(frozen=True)
class Calibration:
    """A correction of a judge's probabilities, and how uncertain it is.

    Attributes:
        labelled: the number of labelled images.
        scale: a, the exponent; above 1 the judge was too unsure, below 1 too sure.
        biases: b_k of each value.
        covariance: of the posterior of (log a, b_1, ..., b_K), by rows.
        before: agreement of the judge as it is with the labels.
        after: that of the corrected judge with labels that its correction was not computed from.
    """

    labelled: int
    scale: float
    biases: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    before: Agreement
    after: Agreement

    def __call__(self, p: Tensor) -> Tensor:
        """The corrected probabilities, (n, values), of a judge's."""
        return _corrected(p, np.array([np.log(self.scale), *self.biases]))

    def drawn(self, p: Tensor) -> Iterator[Tensor]:
        """The probabilities by `DRAWN` corrections from the posterior, always the same."""
        mean = np.array([np.log(self.scale), *self.biases])
        corrections = np.random.default_rng(0).multivariate_normal(mean, self.covariance, DRAWN)
        return (_corrected(p, correction) for correction in corrections)


def calibrate(p: Tensor, labels: Tensor) -> Calibration:
    """The correction that suits labelled images.

    Args:
        p: (n, values) the judge's probabilities of n images, at least 2.
        labels: (n,) the places of their true values, not all the same.

    Example:
        >>> says_first = torch.tensor([[0.9, 0.1], [0.7, 0.3]]).repeat(20, 1)
        >>> found = calibrate(says_first, torch.tensor([0, 1]).repeat(20))
        >>> [round(float(q), 1) for q in found(says_first)[1]]
        [0.2, 0.8]
    """
    n = len(p)
    x, y = _log(p), labels.numpy()
    fitted = _fit(x, y)
    out = torch.empty_like(p, dtype=torch.float64)
    order = np.random.default_rng(0).permutation(n)
    for fold in range(min(n, FOLDS)):
        held = order[fold::FOLDS]
        rest = np.setdiff1d(order, held)
        out[held] = _corrected(p[held], _fit(x[rest], y[rest]))
    return Calibration(
        labelled=n,
        scale=float(np.exp(fitted[0])),
        biases=tuple(fitted[1:].tolist()),
        covariance=tuple(map(tuple, _covariance(x, fitted).tolist())),
        before=agreement(p, labels),
        after=agreement(out, labels),
    )


def draw_values(p: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(n, count) places of values, as a judge's probabilities p (n, values) have it.

    Each image shows a value in p of its draws, up to rounding: a Latin hypercube, whose means vary
    less than those of independent draws.
    """
    order = torch.rand(len(p), count, generator=generator).argsort(1)
    within = torch.rand(len(p), count, generator=generator, dtype=p.dtype)
    edges = (p / p.sum(1, keepdim=True)).cumsum(1)
    places = torch.searchsorted(edges, (order + within) / count, right=True)
    return places.clamp(max=p.shape[1] - 1)  # a sum may round to less than 1


def agreement(p: Tensor, labels: Tensor) -> Agreement:
    """How well probabilities (n, values) agree with the places of labels (n,)."""
    of_label = p.double().clamp(min=SURE)[torch.arange(len(p)), labels]
    return Agreement(float((p.argmax(1) == labels).double().mean()), float(-of_label.log().mean()))


def _log(p: Tensor) -> np.ndarray:
    return p.double().clamp(min=SURE).log().numpy()


def _logits(x: np.ndarray, correction: np.ndarray) -> np.ndarray:
    return np.exp(correction[0]) * x + correction[1:]


def _corrected(p: Tensor, correction: np.ndarray) -> Tensor:
    return torch.from_numpy(softmax(_logits(_log(p), correction), axis=1))


def _fit(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The most probable (log a, b_1, ..., b_K) by log-probabilities x (n, K) and labels y (n,)."""
    rows = np.arange(len(x))

    def loss(correction: np.ndarray) -> tuple[float, np.ndarray]:
        logits = log_softmax(_logits(x, correction), axis=1)
        error = np.exp(logits)
        error[rows, y] -= 1
        of_scale = np.exp(correction[0]) * (error * x).sum()
        gradient = np.concatenate([[of_scale], error.sum(0)]) + correction
        return -logits[rows, y].sum() + correction @ correction / 2, gradient

    exact = {"ftol": 1e-14, "gtol": 1e-8}
    start = np.zeros(1 + x.shape[1])
    return minimize(loss, start, jac=True, method="L-BFGS-B", options=exact).x


def _covariance(x: np.ndarray, correction: np.ndarray) -> np.ndarray:
    """Inverse of the Fisher information and the prior's, which is one."""
    q = softmax(_logits(x, correction), axis=1)
    n, count = x.shape
    of_scale = np.exp(correction[0]) * x[..., None]  # d logits / d log a
    of_biases = np.broadcast_to(np.eye(count), (n, count, count))
    slopes = np.concatenate([of_scale, of_biases], axis=2)
    spread = q[:, :, None] * np.eye(count) - q[:, :, None] * q[:, None, :]
    information = np.einsum("nki,nkl,nlj->ij", slopes, spread, slopes)
    return np.linalg.inv(information + np.eye(len(correction)))
