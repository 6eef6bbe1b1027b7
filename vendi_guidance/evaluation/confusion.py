"""Errors of a judge, by a labelled sample of images, and shares of values corrected for them.

A judge that takes one value for another distorts the shares of both. With c(t, j), the probability
that it takes value t for j, shares s are judged as q(j) = sum_t s(t) c(t, j). Its errors are the
same whatever the shares are, so that c from any labelled images corrects other prompts and runs.
"""

from dataclasses import dataclass

import torch
from scipy.stats import binomtest
from torch import Tensor
from torch.distributions import Dirichlet

from vendi_guidance.scores.subsampling import LEVEL, Estimate

DRAWS, ITERATIONS = 400, 300
PRIOR = 2.0  # labels of each value that the judge's accuracy over all values counts for


@dataclass(frozen=True)
class Reliability:
    """A judge's accuracy in one attribute, and the attribute's shares without its errors.

    Attributes:
        labelled: number of labelled images that it has judged.
        accuracy: share that it is right in, with Wilson's interval.
        does: as in `AttributeScores`, corrected, with intervals that cover the errors of the judge
            and of the sample; empty if no prompt leaves the attribute open.
    """

    labelled: int
    accuracy: Estimate
    does: tuple[Estimate, ...] = ()


def reliability(p: Tensor, truth: Tensor, is_open: Tensor) -> Reliability | None:
    """The reliability of a judge, from (n, values) probabilities in n images by the judge and by
    the labels, NaN for images that they do not know, and whether an image's prompt, (n,), leaves
    the attribute open; None without labels."""
    known = ~p[:, 0].isnan()
    both = known & ~truth[:, 0].isnan()
    n, k = int(both.sum()), p.shape[1]
    if not n:
        return None
    judged = p.nan_to_num(-1).argmax(1)
    cells = truth[both].argmax(1) * k + judged[both]
    confusion = cells.bincount(minlength=k * k).double().view(k, k)
    hits, tail = int(confusion.trace()), (1 - LEVEL) / 2
    accuracy = Estimate(hits / n, *map(float, binomtest(hits, n).proportion_ci(LEVEL, "wilson")))
    if not (counts := judged[known & is_open].bincount(minlength=k)).any():
        return Reliability(n, accuracy)
    middle_and_ends = torch.tensor([0.5, tail, 1 - tail], dtype=torch.float64, device="cpu")
    ends = _corrected(confusion, counts).quantile(middle_and_ends, dim=0)
    return Reliability(n, accuracy, tuple(Estimate(*column) for column in ends.T.tolist()))


def _corrected(confusion: Tensor, counts: Tensor) -> Tensor:
    """(draws, values) true shares, for (values, values) numbers of labelled images by true and by
    judged value, and (values,) numbers of images by judged value.

    Each draw has the most likely shares, found by expectation maximisation, for error rates and
    judged shares from their posteriors. Values with few labels lean on the accuracy over all.
    """
    k = len(counts)
    right = (confusion.trace() + 1) / (confusion.sum() + 2)
    eye = torch.eye(k, dtype=confusion.dtype, device="cpu")
    usual = right * eye + (1 - right) / (k - 1) * (1 - eye)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        errors = Dirichlet(confusion + PRIOR * usual).sample((DRAWS,))
        judged = Dirichlet(counts.double() + 1 / k).sample((DRAWS,))
    shares = torch.full_like(judged, 1 / k)
    for _ in range(ITERATIONS):
        expected = torch.einsum("dt,dtj->dj", shares, errors)
        shares = shares * torch.einsum("dtj,dj->dt", errors, judged / expected)
    return shares
