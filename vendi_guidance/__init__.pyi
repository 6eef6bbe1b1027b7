"""The public names and where each is defined; `__init__.py` imports them on first use."""

from vendi_guidance.adapter.callback import VendiGuidance as VendiGuidance
from vendi_guidance.adapter.image_space import (
    ImageSpace as ImageSpace,
    exemplar_features as exemplar_features,
)
from vendi_guidance.adapter.modular import guide_loops as guide_loops
from vendi_guidance.evaluation.attributes import (
    Attribute as Attribute,
    load_attributes as load_attributes,
)
from vendi_guidance.evaluation.batches import as_batch as as_batch
from vendi_guidance.evaluation.embedding import (
    Embedding as Embedding,
    ImageReader as ImageReader,
)
from vendi_guidance.evaluation.evaluator import compare as compare, evaluate as evaluate
from vendi_guidance.evaluation.judges import Judges as Judges
from vendi_guidance.evaluation.results import Report as Report
from vendi_guidance.features.base import (
    FromFunction as FromFunction,
    Labels as Labels,
    load_features as load_features,
)
from vendi_guidance.features.encoders import (
    dinov2_encoder as dinov2_encoder,
    open_clip_encoder as open_clip_encoder,
)
from vendi_guidance.features.images import open_image_embedder as open_image_embedder
from vendi_guidance.features.prompts import open_prompt_embedder as open_prompt_embedder
from vendi_guidance.guidance.settings import Published as Published, Rounds as Rounds
from vendi_guidance.guidance.window import SlidingWindow as SlidingWindow
from vendi_guidance.kernels.standard import (
    Cosine as Cosine,
    Gaussian as Gaussian,
    Precomputed as Precomputed,
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
from vendi_guidance.scores.alignment import (
    clip_score as clip_score,
    group_vendi as group_vendi,
    in_batch_similarity as in_batch_similarity,
)
from vendi_guidance.scores.bandwidth import median_distance as median_distance
from vendi_guidance.scores.functional import (
    cluster_rke as cluster_rke,
    cluster_vendi as cluster_vendi,
    conditional_rke as conditional_rke,
    conditional_vendi as conditional_vendi,
    information_rke as information_rke,
    information_vendi as information_vendi,
    intdiv as intdiv,
    rke as rke,
    vendi as vendi,
)
from vendi_guidance.scores.intervals import (
    convergence as convergence,
    score_interval as score_interval,
)
from vendi_guidance.scores.metrics import (
    ConditionalVendiScore as ConditionalVendiScore,
    InformationVendiScore as InformationVendiScore,
    VendiScore as VendiScore,
)
from vendi_guidance.scores.modes import (
    find_modes as find_modes,
)
from vendi_guidance.scores.references import (
    frechet_distance as frechet_distance,
    kernel_distance as kernel_distance,
    manifold_scores as manifold_scores,
)
from vendi_guidance.scores.spectra import (
    Exact as Exact,
    Lanczos as Lanczos,
    Nystrom as Nystrom,
    RandomFourier as RandomFourier,
)
