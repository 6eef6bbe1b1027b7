"""The public names and where each is defined; `__init__.py` imports them on first use."""

from vendi_guidance.evaluation.comparison import compare as compare
from vendi_guidance.evaluation.evaluator import (
    Report as Report,
)
from vendi_guidance.evaluation.evaluator import (
    evaluate as evaluate,
)
from vendi_guidance.features.base import (
    FrameMean as FrameMean,
)
from vendi_guidance.features.base import (
    FromFunction as FromFunction,
)
from vendi_guidance.features.base import (
    load_features as load_features,
)
from vendi_guidance.features.encoders import (
    dinov2_encoder as dinov2_encoder,
)
from vendi_guidance.features.encoders import (
    open_clip_encoder as open_clip_encoder,
)
from vendi_guidance.features.images import open_image_embedder as open_image_embedder
from vendi_guidance.features.prompts import open_prompt_embedder as open_prompt_embedder
from vendi_guidance.guidance.callback import VendiGuidance as VendiGuidance
from vendi_guidance.guidance.spaces import (
    ImageSpace as ImageSpace,
)
from vendi_guidance.guidance.spaces import (
    exemplar_features as exemplar_features,
)
from vendi_guidance.guidance.window import SlidingWindow as SlidingWindow
from vendi_guidance.kernels.custom import (
    Pairwise as Pairwise,
)
from vendi_guidance.kernels.custom import (
    Precomputed as Precomputed,
)
from vendi_guidance.kernels.custom import (
    Sum as Sum,
)
from vendi_guidance.kernels.ngrams import NGram as NGram
from vendi_guidance.kernels.standard import (
    Cosine as Cosine,
)
from vendi_guidance.kernels.standard import (
    Gaussian as Gaussian,
)
from vendi_guidance.kernels.standard import (
    ProbabilityProduct as ProbabilityProduct,
)
from vendi_guidance.pipelines.vendi_guided_flux import (
    VendiGuidedFluxPipeline as VendiGuidedFluxPipeline,
)
from vendi_guidance.pipelines.vendi_guided_pixart_alpha import (
    VendiGuidedPixArtAlphaPipeline as VendiGuidedPixArtAlphaPipeline,
)
from vendi_guidance.pipelines.vendi_guided_pixart_sigma import (
    VendiGuidedPixArtSigmaPipeline as VendiGuidedPixArtSigmaPipeline,
)
from vendi_guidance.pipelines.vendi_guided_sdxl import (
    VendiGuidedSDXLPipeline as VendiGuidedSDXLPipeline,
)
from vendi_guidance.scores.bandwidth import (
    median_distance as median_distance,
)
from vendi_guidance.scores.bandwidth import (
    select_bandwidth as select_bandwidth,
)
from vendi_guidance.scores.convergence import convergence as convergence
from vendi_guidance.scores.functional import (
    cluster_rke as cluster_rke,
)
from vendi_guidance.scores.functional import (
    cluster_vendi as cluster_vendi,
)
from vendi_guidance.scores.functional import (
    conditional_rke as conditional_rke,
)
from vendi_guidance.scores.functional import (
    conditional_vendi as conditional_vendi,
)
from vendi_guidance.scores.functional import (
    information_rke as information_rke,
)
from vendi_guidance.scores.functional import (
    information_vendi as information_vendi,
)
from vendi_guidance.scores.functional import (
    intdiv as intdiv,
)
from vendi_guidance.scores.functional import (
    rke as rke,
)
from vendi_guidance.scores.functional import (
    vendi as vendi,
)
from vendi_guidance.scores.intervals import score_interval as score_interval
from vendi_guidance.scores.manifold import manifold_scores as manifold_scores
from vendi_guidance.scores.metrics import (
    ConditionalRKEScore as ConditionalRKEScore,
)
from vendi_guidance.scores.metrics import (
    ConditionalVendiScore as ConditionalVendiScore,
)
from vendi_guidance.scores.metrics import (
    InformationRKEScore as InformationRKEScore,
)
from vendi_guidance.scores.metrics import (
    InformationVendiScore as InformationVendiScore,
)
from vendi_guidance.scores.metrics import (
    RKEScore as RKEScore,
)
from vendi_guidance.scores.metrics import (
    VendiScore as VendiScore,
)
from vendi_guidance.scores.modes import (
    find_modes as find_modes,
)
from vendi_guidance.scores.modes import (
    group_scores as group_scores,
)
from vendi_guidance.scores.modes import (
    k_means as k_means,
)
from vendi_guidance.scores.references import (
    clip_score as clip_score,
)
from vendi_guidance.scores.references import (
    frechet_distance as frechet_distance,
)
from vendi_guidance.scores.references import (
    in_batch_similarity as in_batch_similarity,
)
from vendi_guidance.scores.references import (
    kernel_distance as kernel_distance,
)
from vendi_guidance.scores.spectra import (
    Exact as Exact,
)
from vendi_guidance.scores.spectra import (
    Lanczos as Lanczos,
)
from vendi_guidance.scores.spectra import (
    Nystrom as Nystrom,
)
from vendi_guidance.scores.spectra import (
    RandomFourier as RandomFourier,
)
