"""The public names, by the module that defines each."""

from vendi_guidance.adapter.callback import VendiGuidance as VendiGuidance
from vendi_guidance.adapter.modular import guide_loops as guide_loops
from vendi_guidance.evaluation.embedding import Embedding as Embedding
from vendi_guidance.evaluation.evaluator import compare as compare, evaluate as evaluate
from vendi_guidance.evaluation.results import Report as Report
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
from vendi_guidance.scores.functional import (
    conditional_rke as conditional_rke,
    conditional_vendi as conditional_vendi,
    information_rke as information_rke,
    information_vendi as information_vendi,
    rke as rke,
    vendi as vendi,
)
from vendi_guidance.scores.metrics import (
    ConditionalVendiScore as ConditionalVendiScore,
    InformationVendiScore as InformationVendiScore,
    VendiScore as VendiScore,
)
