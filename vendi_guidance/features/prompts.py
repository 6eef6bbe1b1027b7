"""Prompt embedders by name. All return features of unit length."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import torch
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModelWithProjection, CLIPTokenizer, PreTrainedModel

from vendi_guidance.features.base import PromptEmbedder
from vendi_guidance.features.network import EmbeddingNetwork, Parts, open_parts
from vendi_guidance.features.open_clip import load_open_clip
from vendi_guidance.features.weights import all_weights, model_folder
from vendi_guidance.storage.messages import optional_import

WORD_FEATURES = 1024  # number of hash buckets of the `words` embedder


def open_prompt_embedder(
    spec: str, *, device: str = "cpu", batch_size: int = 256
) -> PromptEmbedder:
    """Open a prompt embedder by name.

    Args:
        spec: the kind and, after a colon, the model:

            - `clip[:MODEL[/PRETRAINED]]`: the text encoder of a CLIP or SigLIP model, named as for
              `open_image_embedder`;
            - `sentence-transformers[:FOLDER_OR_NAME]`: a text encoder, pooled according to its
              settings; without them, by the mean over tokens;
            - `words`: counts of words and word pairs, hashed to 1024 features. Needs no weights,
              but treats synonyms as unrelated;
            - `sdxl:FOLDER`: the second text encoder of an SDXL model; truncates prompts like SDXL.
        device, batch_size: as for `open_image_embedder`; errors are the same, too.

    Example:
        >>> from vendi_guidance.features import open_prompt_embedder
        >>> embedder = open_prompt_embedder("sdxl:assets/demo-sdxl")
        >>> embedder.embed(["waving hand", "thumbs up"]).shape
        torch.Size([2, 128])
    """
    kind, (settings, network, transform) = open_parts("prompt", KINDS, spec)
    settings["unit_length"] = True
    return _PromptNetworkEmbedder(kind, settings, network, transform, device, batch_size)


class _PromptNetworkEmbedder(EmbeddingNetwork):
    def embed(self, prompts: Sequence[str]) -> Tensor:
        """(n, m) float32 features of n prompts, of unit length, on the CPU."""
        # tokenizers reject unpaired surrogates
        valid = [prompt.encode("utf-8", "replace").decode() for prompt in prompts]
        with self.precision():
            parts = [self.transform(batch, self.device) for batch in self.batches(valid)]
        return nn.functional.normalize(torch.cat(parts).float().cpu(), dim=1)


def _clip(name: str) -> Parts:
    clip = load_open_clip(name)
    tokenizer, model = clip.open_tokenizer(), clip.model
    del model.visual  # needed neither on the device nor in the digest

    def encode(prompts: list[str], device: str) -> Tensor:
        return model.encode_text(tokenizer(prompts).to(device))

    return {"weights": clip.name, "tokens": tokenizer.context_length}, model, encode


def _sentence_transformer(name: str) -> Parts:
    what = "a text encoder as an embedder"
    library = optional_import("sentence_transformers", "sentence-transformers", what)
    name = name or "sentence-transformers/all-MiniLM-L6-v2"
    # The library pools tokens itself, and many of its models lack the weights of BERT's pooler.
    with all_weights(PreTrainedModel, unless=("pooler.",)):
        model = library.SentenceTransformer(
            str(model_folder(name)),
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True, "dtype": torch.float32},
        )

    def encode(prompts: list[str], device: str) -> Tensor:
        options = {"convert_to_tensor": True, "show_progress_bar": False}
        return model.encode(prompts, batch_size=len(prompts), device=device, **options)

    modules = [type(module).__name__ for module in model]
    settings = {"weights": name, "tokens": model.max_seq_length, "modules": modules}
    return settings, model, encode


def _sdxl(folder: str) -> Parts:
    for part in ("tokenizer_2", "text_encoder_2"):
        if not Path(folder, part).is_dir():
            raise FileNotFoundError(f"there is no SDXL in {folder or '(no folder)'}: no {part}")
    config, _ = CLIPTextConfig.get_config_dict(folder, subfolder="text_encoder_2")
    kind = config.get("model_type", "clip")
    if not kind.startswith("clip"):
        raise FileNotFoundError(f"there is no SDXL in {folder}: its text_encoder_2 is a {kind}")
    tokenizer = CLIPTokenizer.from_pretrained(folder, subfolder="tokenizer_2")
    with all_weights(PreTrainedModel):
        model = CLIPTextModelWithProjection.from_pretrained(
            folder, subfolder="text_encoder_2", use_safetensors=True, dtype=torch.float32
        )
    tokenize = partial(tokenizer, padding="max_length", truncation=True, return_tensors="pt")

    def encode(prompts: list[str], device: str) -> Tensor:
        return model(tokenize(prompts).input_ids.to(device)).text_embeds

    return {"weights": folder, "tokens": tokenizer.model_max_length}, model, encode


def _words(name: str) -> Parts:
    if name:
        raise ValueError(f'the "words" embedder takes no model, got {name!r}: leave it out')

    def encode(prompts: list[str], device: str) -> Tensor:
        counts = torch.zeros(len(prompts), WORD_FEATURES, dtype=torch.float32, device="cpu")
        for row, prompt in zip(counts, prompts, strict=True):
            found = words(prompt)
            for term in (*found, *map(" ".join, pairwise(found))):
                row[crc32(term.encode()) % WORD_FEATURES] += 1
        return counts

    return {"features": WORD_FEATURES}, nn.Identity(), encode


def words(text: str) -> list[str]:
    """Split a text into lower-case words and single characters of punctuation and symbols."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


KINDS: dict[str, Callable[[str], Parts]] = {
    "clip": _clip,
    "sentence-transformers": _sentence_transformer,
    "words": _words,
    "sdxl": _sdxl,
}
