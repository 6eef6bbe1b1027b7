"""What counts as rounding: copies do, at any width and precision, and little else does."""

import pytest
import torch

from tests.helpers.duplicates import DTYPES, WIDTHS
from vendi_guidance.kernels.rounding import exact_ones, rounding
from vendi_guidance.kernels.standard import Cosine, Gaussian


@pytest.mark.parametrize("width", WIDTHS[1:])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_differs_by_more_than_rounding_stays(width, dtype):
    cosines = 1 - torch.tensor([0.0, 0.9, 1.5, 1e3], dtype=dtype) * rounding(dtype, width)
    found = exact_ones(cosines.clone(), width)
    assert (found == 1).tolist() == [True, True, False, False]
    assert torch.equal(found[2:], cosines[2:])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", [Gaussian(0.2), Gaussian(1.0), Cosine()])
def test_copies_have_similarity_one_wherever_the_others_are(kernel, width, dtype):
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        x = torch.rand(2, width, generator=generator, dtype=dtype) + 0.01
        x = 9 * x / x.sum(dim=1, keepdim=True)
        found = kernel(x[[0, 0, 1]], x[[0, 0, 0, 1]])
        assert torch.equal(found[:2, :3], torch.ones_like(found[:2, :3])) and found[2, 3] == 1
