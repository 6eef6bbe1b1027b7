"""How alike two items are: kernels of features, of texts, of any objects, and of sums of these."""

from vendi_guidance.kernels.base import (
    Features as Features,
    InnerProduct as InnerProduct,
    Kernel as Kernel,
    SphereKernel as SphereKernel,
    as_features as as_features,
)
from vendi_guidance.kernels.custom import (
    Pairwise as Pairwise,
    Precomputed as Precomputed,
    Similarity as Similarity,
    Sum as Sum,
    as_kernel as as_kernel,
)
from vendi_guidance.kernels.ngrams import NGram as NGram
from vendi_guidance.kernels.standard import (
    Cosine as Cosine,
    Gaussian as Gaussian,
    ProbabilityProduct as ProbabilityProduct,
    Product as Product,
)
