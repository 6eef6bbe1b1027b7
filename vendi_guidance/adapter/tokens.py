"""Changes the token embeddings of the prompt in a network's arguments.

Pooled embeddings stay unchanged: noise on them loses more of the prompt's details.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from vendi_guidance.adapter.arguments import uncompiled
from vendi_guidance.guidance.step import Perturb

MASKS = (
    *("encoder_attention_mask", "encoder_hidden_states_mask", "encoder_mask"),
    *("text_embedding_mask", "attention_mask"),
)
"""Names of the mask of `encoder_hidden_states`; the last one may extend over the latents."""

TOKENS = {
    "encoder_hidden_states": MASKS,
    "encoder_hidden_states_1": ("encoder_attention_mask_1",),  # AudioLDM 2
    "encoder_hidden_states_2": ("encoder_attention_mask_2",),  # HunyuanImage
    "encoder_hidden_states_t5": ("text_embedding_mask_t5",),  # HunyuanDiT
    "cap_feats": (),  # Z-Image, a list
    "clip_text": (),  # Stable Cascade
    "text_bth": (),  # ERNIE-Image, padded with zeros
}
"""Names of token embeddings, (rows, t, ..., width) or lists of (t, width), and of their masks."""

CACHE = ("kv_cache", "kv_cache_mode")
"""Arguments of a cache that a network fills at its first step and reads later."""

FRESH_CACHES = ("QwenImage21Transformer2DModel",)
"""Networks that work without their cache: it holds only what follows from other arguments."""


def without_cache(module: nn.Module, given: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments of an evaluation that does not use the cache; None if the network needs it."""
    if given.get(CACHE[0]) is None:
        return given
    if type(uncompiled(module)).__name__ not in FRESH_CACHES:
        return None
    return {**given, **dict.fromkeys(CACHE)}


def has_tokens(module: nn.Module, given: dict[str, Any]) -> bool:
    """Whether a network was called with token embeddings that `with_tokens` can change."""
    return bool(_tokens(given)) and without_cache(module, given) is not None


def with_tokens(
    module: nn.Module, given: dict[str, Any], own: range, rows: int, change: Perturb
) -> dict[str, Any]:
    """The arguments of a network with changed copies of token embeddings, in the rows `own`, one
    for each sample, of all `rows`. ValueError if the network has none or needs its cache."""
    found, kept = _tokens(given), without_cache(module, given)
    if not found or kept is None:
        kind = type(uncompiled(module)).__name__
        raise ValueError(
            f"{kind} is given no embeddings of a prompt's tokens, so none can be perturbed: guide "
            'it with proposal="gradient"'
        )
    tokens = {name: TOKENS[name] for name in found}
    return {**kept, **changed(given, tokens, own, rows, change)}


def changed(
    given: Mapping[str, Any],
    tokens: Mapping[str, Sequence[str]],
    own: range,
    rows: int,
    change: Perturb,
) -> dict[str, Any]:
    """Changed copies of the arguments `tokens`, whose names come with those of their masks; `own`
    and `rows` are as in `with_tokens`."""
    changes = {
        name: [*it] if isinstance(it := given[name], list) else it.clone() for name in tokens
    }
    for sample, row in enumerate(own):
        for name, copy in changes.items():
            each = len(copy) // rows  # more than 1 for the frames of a video
            mask = _mask(given, name, tokens[name])
            for_row = None if mask is None else mask[row * each]
            part = slice(row * each, (row + 1) * each)
            if isinstance(copy, list):
                copy[row] = change(copy[row][None], sample, None)[0].to(copy[row].dtype)
            else:
                copy[part] = change(copy[part], sample, for_row)
    return changes


def _tokens(given: Mapping[str, Any]) -> list[str]:
    def is_tokens(value: Any) -> bool:
        if isinstance(value, list):
            return bool(value) and all(isinstance(it, Tensor) and it.ndim == 2 for it in value)
        return isinstance(value, Tensor) and value.ndim > 2

    return [name for name in TOKENS if is_tokens(given.get(name))]


def _mask(given: Mapping[str, Any], name: str, masks: Sequence[str]) -> Tensor | None:
    """(rows, t) True for the tokens that the network reads; None if it gets no mask."""
    tokens = given[name]
    if isinstance(tokens, list):
        return None
    rows, count = tokens.shape[:2]
    found = (given.get(mask) for mask in masks)
    for mask in (it for it in found if isinstance(it, Tensor) and it.ndim == 2):
        if len(mask) == rows and mask.shape[1] >= count:
            return mask[:, :count] > 0
    return None
