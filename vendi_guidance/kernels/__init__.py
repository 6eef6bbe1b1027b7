"""How alike two items are: kernels of features, of texts, and of any objects."""

from vendi_guidance.kernels.base import Kernel, as_features
from vendi_guidance.kernels.custom import Pairwise, Precomputed
from vendi_guidance.kernels.ngrams import NGram
from vendi_guidance.kernels.standard import Cosine, Gaussian, ProbabilityProduct

__all__ = ["Cosine", "Gaussian", "Kernel", "NGram", "Pairwise", "Precomputed"]
__all__ += ["ProbabilityProduct", "as_features"]
