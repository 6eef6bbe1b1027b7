"""One embedding for the prompt of each image, from the tensors that a pipeline's callback gets: the
pooled one, or else the mean over its tokens."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.adapter.families import family_of
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import SIGMA_PROMPT, Settings

# Best first. Kandinsky 5 has a pooled "prompt_embeds_clip" too, but orders it differently.
POOLED = ("add_text_embeds", "pooled_prompt_embeds", "prompt_embeds_pooled")
UNPOOLED = ("prompt_embeds", "prompt_embeds_qwen", "text_encoder_hidden_states")
# So does Kandinsky 3 with "attention_mask", which hides only tokens that are zero anyway.
MASKS = ("prompt_attention_mask", "prompt_embeds_mask")


def prompt_inputs(pipeline: Any) -> list[str]:
    """Names of the best prompt embeddings that callbacks of `pipeline` may request: pooled ones,
    else token embeddings and their mask, else none."""
    offered = set(getattr(pipeline, "_callback_tensor_inputs", ()))
    name = best_of(offered)
    masks = [] if name in POOLED else [mask for mask in MASKS if mask in offered]
    return [] if name is None else [name, *masks]


def prompt_features(
    pipeline: Any, tensors: Mapping[str, Any], name: str | None = None
) -> Tensor | None:
    """(images, m) float32 features of the prompts, or None if there are no embeddings.

    Args:
        tensors: the callback's tensors: "latents", one for each image, embeddings, and perhaps a
            mask. Embeddings are (rows, m), (rows, tokens, m), (rows, tokens, layers, m), or a list
            with one (tokens, m) for each row; a mask is (rows, tokens).
        name: the embeddings to use; None is the best of those in `tensors`.
    """
    name = name or best_of(tensors)
    if name is None or tensors.get(name) is None:
        return None
    embeddings, latents = tensors[name], tensors["latents"]
    if isinstance(embeddings, Sequence):  # Z-Image Omni has tokens in pieces, between images
        whole = (row if isinstance(row, Tensor) else torch.cat([*row]) for row in embeddings)
        embeddings = torch.stack([tokens.float().mean(dim=0) for tokens in whole])
    if not isinstance(embeddings, Tensor):
        raise ValueError(
            f"{name} must be a tensor or a list of tensors, got a {type(embeddings).__name__}: "
            'use objective "rke" or "vendi"'
        )
    if len(embeddings) < len(latents) or len(embeddings) % len(latents):
        raise ValueError(
            f"{name} has {len(embeddings)} rows for {len(latents)} latents: "
            "give one prompt for each image"
        )
    if embeddings.ndim == 2:
        return _of_prompts(pipeline, embeddings, latents).float()
    mask = next((tensors[mask] for mask in MASKS if tensors.get(mask) is not None), None)
    if mask is None:
        return _of_prompts(pipeline, embeddings, latents).float().flatten(2).mean(dim=1)
    tokens, mask = (_of_prompts(pipeline, rows, latents) for rows in (embeddings, mask))
    if mask.shape != tokens.shape[:2]:
        raise ValueError(
            f"the mask of {name} has shape {tuple(mask.shape)} where {tuple(tokens.shape[:2])} "
            "was expected: do not request it"
        )
    weights = mask.float()
    total = torch.einsum("nt,ntm->nm", weights, tokens.float().flatten(2))
    return total / weights.sum(dim=1, keepdim=True).clamp(min=1)


class ComparedPrompts:
    """The prompts of a call, which the objective compares; computed again if the tensors change.

    Args:
        name: the embeddings to use; None is the best that the pipeline gives.
        settings, memory: of the call. If no prompt bandwidth is known yet, pooled CLIP embeddings
            set it to the published one.
    """

    def __init__(self, name: str | None, settings: Settings, memory: Memory) -> None:
        self.are_needed = name is not None or settings.is_conditional
        self._name, self._settings, self._memory = name, settings, memory
        self._known: tuple[list[Any], dict[str, Any], Tensor] | None = None

    def features(self, pipeline: Any, tensors: Mapping[str, Any]) -> Tensor:
        """`prompt_features`; ValueError if there are none."""
        given = {name: it for name, it in tensors.items() if name != "latents"}
        counted = (it for it in given.values() if isinstance(it, Tensor) and not it.is_inference())
        versions = [(id(it), it._version) for it in counted]
        if self._known and len(versions) == len(given) and versions == self._known[0]:
            return self._known[2]
        prompts = prompt_features(pipeline, tensors, self._name)
        if prompts is None:
            kind, names = type(pipeline).__name__, prompt_inputs(pipeline)
            why = 'no prompt embeddings: use objective "rke" or "vendi"'
            if names:
                why = f"{names[0]} only if asked: call it with **guidance.on(pipe) in place of "
                why += "callback_on_step_end=guidance"
            raise ValueError(f"the objective compares prompts: {kind} gives its callback {why}")
        is_known = self._settings.sigma_prompt or self._memory.sigma_prompt
        if not is_known and is_pooled_clip(pipeline, tensors, self._name):
            self._memory.sigma_prompt = SIGMA_PROMPT
        self._known = versions, given, prompts  # ids stay those of the tensors that are kept
        return prompts


def is_pooled_clip(pipeline: Any, tensors: Iterable[str], name: str | None) -> bool:
    """Whether `prompt_features` reads pooled CLIP embeddings, which the published bandwidth is for.
    Other distances depend on the encoder and, for means over tokens, on the padding."""
    pools_clip = not family_of(pipeline).pools_language_model
    return pools_clip and (name or best_of(tensors)) in POOLED


def best_of(names: Iterable[str]) -> str | None:
    """The name of the best prompt embeddings among these variables."""
    known = set(names)
    return next((name for name in (*POOLED, *UNPOOLED) if name in known), None)


def _of_prompts(pipeline: Any, rows: Tensor, latents: Tensor) -> Tensor:
    """The rows of the prompts: one for each image, or for the first frame of each video."""
    family = family_of(pipeline)
    frames = latents.shape[2] if family.tokens_per_frame and rows.ndim > 2 else 1
    count = len(latents) * frames
    first = 0 if family.prompts_first else max(len(rows) - count, 0)
    return rows[first : first + count : frames]
