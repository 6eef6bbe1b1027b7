"""Embedders of prompts by name. All give features of unit length."""

from collections.abc import Callable, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import CLIPTextModelWithProjection, CLIPTokenizer

from vendi_guidance.features.base import PromptEmbedder
from vendi_guidance.features.network import batches, digest_of, half_precision, precision
from vendi_guidance.features.open_clip import load_open_clip
from vendi_guidance.features.weights import model_folder, reason

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def open_prompt_embedder(
    spec: str, *, device: str = "cpu", batch_size: int = 256, progress: bool = False
) -> PromptEmbedder:
    """An embedder of prompts by its name.

    Args:
        spec: a kind and, behind a colon, which one:

            - `clip[:MODEL[/PRETRAINED]]`: the text half of a CLIP or SigLIP, named as for
              `open_image_embedder`;
            - `sentence-transformers[:FOLDER_OR_NAME]`, `transformers:FOLDER_OR_NAME`: a text
              encoder, pooled as its own settings for sentence-transformers say, and by the mean
              over tokens where it has none;
            - `sdxl:FOLDER`: an SDXL's second text encoder.
        device: where it computes; half precision on a GPU.
        batch_size: how many prompts at once.
        progress: show a bar.

    Raises:
        ValueError: another kind, or weights that do not fit it.
        FileNotFoundError: the weights are not here; the message says how to fetch them.
        ImportError: the library it needs is not installed.
    """
    kind, _, which = spec.partition(":")
    if kind not in KINDS:
        raise ValueError(f"there is no prompt embedder {kind!r}: take one of {', '.join(KINDS)}")
    try:
        return KINDS[kind](which, device, batch_size, progress)
    except (SafetensorError, RuntimeError) as error:  # torch's word for weights that do not fit
        raise ValueError(f"the weights of {spec} cannot be used: {reason(error)}") from error


class TextEmbedder:
    """Prompt features: the pooled embedding of an SDXL's second text encoder, at unit length.

    Args:
        tokenizer, encoder: the SDXL's `tokenizer_2` and `text_encoder_2`. Words beyond the
            tokenizer's limit are not seen, as the SDXL does not see them.
        batch_size: how many prompts at once.
        progress: show a bar.
    """

    name = "sdxl"

    def __init__(
        self,
        tokenizer: CLIPTokenizer,
        encoder: CLIPTextModelWithProjection,
        *,
        batch_size: int = 256,
        progress: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.encoder = encoder.eval()
        self.batch_size = batch_size
        self.progress = progress

    @classmethod
    def from_pretrained(
        cls, folder: str | PathLike[str], *, batch_size: int = 256, progress: bool = False
    ) -> "TextEmbedder":
        """Those of an SDXL that `save_pretrained` wrote, in single precision."""
        return cls(
            CLIPTokenizer.from_pretrained(folder, subfolder="tokenizer_2"),
            CLIPTextModelWithProjection.from_pretrained(
                folder, subfolder="text_encoder_2", use_safetensors=True, dtype=torch.float32
            ),
            batch_size=batch_size,
            progress=progress,
        )

    @cached_property
    def settings(self) -> dict[str, Any]:
        """See `features.PromptEmbedder`."""
        device = str(self.encoder.device)
        length = self.tokenizer.model_max_length
        return _settings(self.encoder.name_or_path, self.encoder, device, length)

    @torch.no_grad()
    def embed(self, prompts: Sequence[str]) -> Tensor:
        """Features of n prompts: (n, m) float32, of unit length."""
        return _each_once(prompts, self._encode, self.batch_size, self.progress)

    def _encode(self, prompts: list[str]) -> Tensor:
        tokens = self.tokenizer(prompts, padding="max_length", truncation=True, return_tensors="pt")
        with half_precision(str(self.encoder.device)):
            return self.encoder(tokens.input_ids.to(self.encoder.device)).text_embeds


class OpenClipText:
    """Prompt features: the text half of an OpenCLIP model, at unit length.

    Args:
        which: see `open_clips.load_open_clip`, which says what is raised.
        device, batch_size, progress: see `open_prompt_embedder`.
    """

    name = "clip"

    def __init__(self, which: str, device: str, batch_size: int, progress: bool) -> None:
        clip = load_open_clip(which)
        self.tokenizer = clip.tokenizer()
        model = clip.model
        # the image half is not needed on the device, nor in the digest
        del model.visual
        self.model = model.eval().requires_grad_(False).to(device)
        self.settings = _settings(clip.name, model, device, self.tokenizer.context_length)
        self.device = device
        self.batch_size = batch_size
        self.progress = progress

    @torch.no_grad()
    def embed(self, prompts: Sequence[str]) -> Tensor:
        """(n, m) float32 features of n prompts, of unit length, on the CPU."""
        return _each_once(prompts, self._encode, self.batch_size, self.progress)

    def _encode(self, prompts: list[str]) -> Tensor:
        with half_precision(self.device):
            return self.model.encode_text(self.tokenizer(prompts).to(self.device))


class SentenceEmbedder:
    """Prompt features: a text encoder of sentence-transformers or transformers, at unit length.

    Args:
        which: a folder or a name on the hub; empty is all-MiniLM-L6-v2.
        device, batch_size, progress: see `open_prompt_embedder`.

    Raises:
        FileNotFoundError: the weights are not here; the message says how to fetch them.
        ImportError: sentence-transformers is not installed.
    """

    def __init__(self, which: str, device: str, batch_size: int, progress: bool) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise ImportError(
                "text encoders need sentence-transformers: pip install sentence-transformers"
            ) from None
        self.name = "sentence-transformers"
        folder = model_folder(which or MINILM)
        self.model = SentenceTransformer(
            str(folder),
            device=device,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True, "dtype": torch.float32},
        ).eval()
        length = self.model.max_seq_length
        self.settings = _settings(which or MINILM, self.model, device, length)
        self.settings["modules"] = [type(module).__name__ for module in self.model]
        self.device = device
        self.batch_size = batch_size
        self.progress = progress

    def embed(self, prompts: Sequence[str]) -> Tensor:
        """(n, m) float32 features of n prompts, of unit length, on the CPU."""
        return _each_once(prompts, self._encode, self.batch_size, self.progress)

    def _encode(self, prompts: list[str]) -> Tensor:
        with half_precision(self.device):
            return self.model.encode(
                prompts, batch_size=len(prompts), convert_to_tensor=True, show_progress_bar=False
            )


def _sdxl(folder: str, device: str, batch_size: int, progress: bool) -> TextEmbedder:
    for part in ("tokenizer_2", "text_encoder_2"):
        if not Path(folder, part).is_dir():
            raise FileNotFoundError(f"there is no SDXL in {folder or '(no folder)'}: no {part}")
    embedder = TextEmbedder.from_pretrained(folder, batch_size=batch_size, progress=progress)
    embedder.encoder.to(device)
    return embedder


KINDS: dict[str, Callable[[str, str, int, bool], PromptEmbedder]] = {
    "clip": OpenClipText,
    "sentence-transformers": SentenceEmbedder,
    "transformers": SentenceEmbedder,
    "sdxl": _sdxl,
}


def _settings(weights: str, network: nn.Module, device: str, length: int | None) -> dict[str, Any]:
    return {
        "weights": weights,
        "sha256": digest_of(network),
        "precision": precision(device),
        "tokens": length,
        "unit_length": True,
    }


def _each_once(
    prompts: Sequence[str], encode: Callable[[list[str]], Tensor], size: int, progress: bool
) -> Tensor:
    """(n, m) features of unit length; each different prompt is encoded once."""
    places = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts))}
    parts = [encode(list(batch)) for batch in batches(list(places), size, progress)]
    distinct = nn.functional.normalize(torch.cat(parts).float().cpu(), dim=1)
    return distinct[[places[prompt] for prompt in prompts]]
