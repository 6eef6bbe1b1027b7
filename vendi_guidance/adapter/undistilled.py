"""The undistilled network, which predicts in the rounds in place of a network distilled to few
steps, because that one hardly follows the score's gradient: the same network without the LoRA that
distilled it (Lightning, Turbo, Hyper, LCM, ...), or another network. One from before a tuning makes
the first step with classifier-free guidance."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from vendi_guidance.adapter.arguments import uncompiled
from vendi_guidance.adapter.tokens import without_cache
from vendi_guidance.guidance.settings import Published, Settings

ADAPTERS = "adapters"
"""Selects the pipeline's network without its LoRAs."""

AUTO = "auto"
"""Selects the same if LoRAs are what distilled the network, else nothing."""

Undistilled = str | nn.Module | None

BLURRED = 0.93
"""LoRAs distilled a network if its first prediction without them has less than this share of the
contrast with them. Measured: 0.63 to 0.87 for such LoRAs, 0.99 to 1.01 for others. At high noise an
undistilled network predicts a blurred mean of the possible images, a distilled one an image."""

READS = (
    *("in_channels", "out_channels", "patch_size", "cross_attention_dim", "joint_attention_dim"),
    *("caption_channels", "text_dim", "cap_feat_dim", "pooled_projection_dim"),
    *("addition_embed_type", "projection_class_embeddings_input_dim", "encoder_hid_dim_type"),
    *("class_embed_type", "time_cond_proj_dim", "guidance_embeds"),
)
"""Configuration entries that determine a network's inputs and outputs, so that two networks must
agree on them. Depth and width may differ."""


def answer(
    undistilled: Undistilled,
    network: nn.Module,
    forward: Callable[..., Any],
    given: dict[str, Any],
) -> Any:
    """The output of the undistilled network, in place of the pipeline's network with its original
    `forward`; of that one if `undistilled` is None, or "auto" and not decided."""
    if undistilled in (None, AUTO):
        return forward(**given)
    uncached = without_cache(network, given)
    if uncached is None:
        raise ValueError(
            f"{type(network).__name__} reads a cache that it filled at its first step, which "
            "another network would not have: leave out undistilled"
        )
    if isinstance(undistilled, nn.Module):
        return undistilled(**uncached)
    with adapters_off(network):
        return forward(**uncached)


@contextmanager
def adapters_off(network: nn.Module) -> Iterator[None]:
    """While this context lasts, the network's LoRAs are off. Then the same LoRAs are on again, and
    the same weights require gradients."""
    layers = [layer for layer in _adapter_layers(network) if not layer.disable_adapters]
    required = [(it, it.requires_grad) for layer in layers for it in layer.parameters()]
    try:
        for layer in layers:
            layer.enable_adapters(False)
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)
        for weight, was in required:
            weight.requires_grad_(was)


def check_undistilled(undistilled: Undistilled, settings: Settings | None = None) -> None:
    """Raise ValueError unless `VendiGuidance(undistilled=...)` accepts this value, with these
    settings."""
    if undistilled not in (None, AUTO) and isinstance(settings, Published):
        raise ValueError(
            "undistilled is for rounds, and guidance as published makes none: leave it out"
        )
    if undistilled not in (None, AUTO, ADAPTERS) and not isinstance(undistilled, nn.Module):
        raise ValueError(
            f'undistilled must be "{AUTO}", "{ADAPTERS}", None or a network, loaded with '
            f"from_pretrained, such as a UNet2DConditionModel, got {undistilled!r:.80}"
        )


def has_adapters(pipeline: Any, networks: list[nn.Module]) -> bool:
    """Whether any LoRA is on, and none is fused, in a pipeline's networks."""
    layers = _adapter_layers(*networks)
    return not _are_fused(pipeline, layers) and any(not it.disable_adapters for it in layers)


def check_fits(undistilled: Undistilled, pipeline: Any, networks: list[nn.Module]) -> None:
    """Raise ValueError if `undistilled` cannot predict in place of a pipeline's networks."""
    kind, layers = type(pipeline).__name__, _adapter_layers(*networks)
    if isinstance(undistilled, nn.Module):
        if len(networks) != 1:
            raise ValueError(
                f"{kind} has {len(networks)} networks that denoise, so one undistilled network "
                f'cannot stand for them: give "{ADAPTERS}" if they have LoRAs'
            )
        if (reason := _misfit(undistilled, kind, networks[0])) is not None:
            raise ValueError(
                f"undistilled {reason}: give the network that this one was distilled from"
            )
    elif undistilled == ADAPTERS and _are_fused(pipeline, layers):
        names = ", ".join(sorted(getattr(pipeline, "fused_loras", ()))) or "a LoRA"
        raise ValueError(
            f'undistilled="{ADAPTERS}" cannot switch off what is fused into the weights, {names}: '
            "call pipe.unfuse_lora() first, or load the LoRA without fusing it"
        )
    elif undistilled == ADAPTERS and not layers:
        raise ValueError(
            f'undistilled="{ADAPTERS}" needs a network with a LoRA, and {kind} has none loaded: '
            "load one, by pipe.load_lora_weights(...) or --lora, or give the network that this one "
            "was distilled from"
        )


def _are_fused(pipeline: Any, layers: list[Any]) -> bool:
    return bool(getattr(pipeline, "num_fused_loras", 0)) or any(it.merged for it in layers)


def _misfit(undistilled: nn.Module, kind: str, network: nn.Module) -> str | None:
    """Why one network cannot be called in place of another, or None."""
    given, own = uncompiled(undistilled), uncompiled(network)
    if given is own:
        return "is the pipeline's own network"
    if type(given) is not type(own):
        return f"is a {type(given).__name__}, and {kind} denoises with a {type(own).__name__}"
    for name in READS:
        value, wanted = (getattr(getattr(it, "config", None), name, None) for it in (given, own))
        if value != wanted:
            return f"has {name} {value!r} and the pipeline's network {wanted!r}"
    return None


def _adapter_layers(*networks: nn.Module) -> list[Any]:
    """All layers with a LoRA in these networks."""
    adapted = [it for it in networks if getattr(uncompiled(it), "peft_config", None)]
    if not adapted:
        return []
    from peft.tuners.tuners_utils import BaseTunerLayer  # an optional package, installed by now

    return [it for one in adapted for it in one.modules() if isinstance(it, BaseTunerLayer)]
