"""Pictures and prompts to features: the names that other modules use."""

from vendi_guidance.features.base import (
    FrameMean,
    FromFunction,
    ImageEmbedder,
    Labeler,
    Labels,
    PromptEmbedder,
    load_features,
)
from vendi_guidance.features.files import BadImage, FileFeatures, embed_files, stream_features
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import Looks, Probe
from vendi_guidance.features.prompts import TextEmbedder, open_prompt_embedder
from vendi_guidance.storage.images import open_picture, to_rgb

__all__ = [
    "BadImage",
    "FileFeatures",
    "FrameMean",
    "FromFunction",
    "ImageEmbedder",
    "Labeler",
    "Labels",
    "Looks",
    "Probe",
    "PromptEmbedder",
    "TextEmbedder",
    "embed_files",
    "load_features",
    "open_image_embedder",
    "open_picture",
    "open_prompt_embedder",
    "stream_features",
    "to_rgb",
]
