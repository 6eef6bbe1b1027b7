"""Pictures and prompts to features: the names that other modules use."""

from vendi_guidance.features import (
    FrameMean,
    FromFunction,
    ImageEmbedder,
    PromptEmbedder,
    load_features,
)
from vendi_guidance.image_embedders import open_image_embedder
from vendi_guidance.picture_features import BadImage, FileFeatures, embed_files, stream_features
from vendi_guidance.pictures import open_picture, to_rgb
from vendi_guidance.probe import Looks, Probe
from vendi_guidance.prompt_embedders import TextEmbedder, open_prompt_embedder

__all__ = [
    "BadImage",
    "FileFeatures",
    "FrameMean",
    "FromFunction",
    "ImageEmbedder",
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
