"""Prompt-aware diversity: guidance for diffusers pipelines, and scores for finished batches."""

from importlib import import_module
from typing import Any

_HOMES = {
    "vendi_guidance.kernels": ("Cosine", "Gaussian", "ProbabilityProduct"),
    "vendi_guidance.similarities": ("Pairwise", "Precomputed", "Sum"),
    "vendi_guidance.texts": ("NGram",),
    "vendi_guidance.spectra": ("Exact", "Lanczos", "Nystrom", "RandomFourier"),
    "vendi_guidance.scores": (
        "cluster_rke",
        "cluster_vendi",
        "conditional_rke",
        "conditional_vendi",
        "information_rke",
        "information_vendi",
        "intdiv",
        "rke",
        "vendi",
    ),
    "vendi_guidance.metrics": (
        "ConditionalRKEScore",
        "ConditionalVendiScore",
        "InformationRKEScore",
        "InformationVendiScore",
        "RKEScore",
        "VendiScore",
    ),
    "vendi_guidance.uncertainty": ("score_interval",),
    "vendi_guidance.growth": ("convergence",),
    "vendi_guidance.bandwidth": ("median_distance", "select_bandwidth"),
    "vendi_guidance.modes": ("find_modes", "group_scores", "k_means"),
    "vendi_guidance.window": ("SlidingWindow",),
    "vendi_guidance.guidance": ("VendiGuidance",),
    "vendi_guidance.spaces": ("ImageSpace", "exemplar_features"),
    "vendi_guidance.encoders": ("dinov2_encoder", "open_clip_encoder"),
    "vendi_guidance.fidelity": (
        "clip_score",
        "frechet_distance",
        "in_batch_similarity",
        "kernel_distance",
    ),
    "vendi_guidance.neighbours": ("manifold_scores",),
    "vendi_guidance.embedders": (
        "FrameMean",
        "FromFunction",
        "load_features",
        "open_image_embedder",
        "open_prompt_embedder",
    ),
    "vendi_guidance.evaluator": ("Report", "evaluate"),
    "vendi_guidance.comparison": ("compare",),
    "vendi_guidance.pipelines.vendi_guided_flux": ("VendiGuidedFluxPipeline",),
    "vendi_guidance.pipelines.vendi_guided_pixart_alpha": ("VendiGuidedPixArtAlphaPipeline",),
    "vendi_guidance.pipelines.vendi_guided_pixart_sigma": ("VendiGuidedPixArtSigmaPipeline",),
    "vendi_guidance.pipelines.vendi_guided_sdxl": ("VendiGuidedSDXLPipeline",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    # Imported on first use: `import vendi_guidance` should not cost what diffusers costs.
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
