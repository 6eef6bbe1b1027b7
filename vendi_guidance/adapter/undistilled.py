"""The undistilled network, which makes the rounds where a distilled one makes the images.

A network distilled to few steps hardly follows the score's gradient; the network that it was
distilled from does. Where the distillation is a LoRA (Lightning, Turbo, Hyper, LCM, ...) that is
switched off for the predictions of the rounds; else another network answers in the rounds.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from vendi_guidance.adapter.nearby import uncompiled, without_cache
from vendi_guidance.patching import Patch

ADAPTERS = "adapters"
"""Says that the network without its LoRAs is the undistilled one."""

AUTO = "auto"
"""Says that it is found out whether that is so."""

Undistilled = str | nn.Module | None

BLURRED = 0.93
"""Without the LoRAs that distilled a network, its first prediction has less than this share of the
contrast that it has with them: 0.63 to 0.87 were measured, and 0.99 to 1.01 with others. At high
noise an undistilled network predicts a blurred mean of what may be generated, a distilled one an
image."""

READS = (
    "in_channels",
    "out_channels",
    "patch_size",
    "cross_attention_dim",
    "joint_attention_dim",
    "caption_channels",
    "text_dim",
    "cap_feat_dim",
    "pooled_projection_dim",
    "addition_embed_type",
    "projection_class_embeddings_input_dim",
    "encoder_hid_dim_type",
    "class_embed_type",
    "time_cond_proj_dim",
    "guidance_embeds",
)
"""Of a network's configuration: what it is called with and returns. Depth and width may differ."""

HOOKS = ("_hf_hook", "_diffusers_hook")
"""Of accelerate and diffusers, which move a network to its device when it is called."""

_locks: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
_adding = Lock()


def lock_of(network: nn.Module) -> Any:
    """Held while a network's LoRAs are off, and by its evaluations in calls that run beside a call
    that switches them off."""
    with _adding:
        return _locks.setdefault(uncompiled(network), RLock())


def one_at_a_time(network: nn.Module, name: str) -> Patch:
    """Lets evaluations of the network by any call wait while one has its LoRAs off.

    One that began before this is applied is not waited for.

    Args:
        name: of the method that a call of the network goes through.
    """
    lock = lock_of(network)

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        def alone(*args: Any, **kwargs: Any) -> Any:
            with lock:
                return forward(*args, **kwargs)

        return alone

    return Patch(network, name, wrap)


def answer(
    undistilled: Undistilled,
    network: nn.Module,
    forward: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The output in a round: of the network, or of what was given as the undistilled one.

    Args:
        forward: the network's own.
        args, kwargs: as the pipeline called it, with other latents.

    Raises:
        ValueError: the network reads what its first steps have kept.
    """
    if undistilled is None:
        with lock_of(network):
            return forward(*args, **kwargs)
    kept = without_cache(network, kwargs)
    if kept is None:
        raise ValueError(
            f"{type(network).__name__} goes on from what its first step has kept, which another "
            "network would not have: leave out undistilled"
        )
    if isinstance(undistilled, nn.Module):
        return undistilled(*args, **kept)
    with lock_of(network), adapters_off(network):
        return forward(*args, **kept)


@contextmanager
def adapters_off(network: nn.Module) -> Iterator[None]:
    """Meanwhile a network works without its LoRAs. Those that were on are on again afterwards, and
    which weights require gradients is as it was."""
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


def check_undistilled(undistilled: Undistilled) -> None:
    """Raise unless it is one of what `VendiGuidance(undistilled=...)` may be.

    Raises:
        ValueError: another word than "auto" and "adapters".
        TypeError: neither None nor a word nor a network.
    """
    wanted = f'"{AUTO}", "{ADAPTERS}", None or a network such as a UNet2DConditionModel'
    if isinstance(undistilled, str) and undistilled not in (AUTO, ADAPTERS):
        raise ValueError(
            f"undistilled must be {wanted}, got {undistilled!r}: load it first, with "
            "from_pretrained"
        )
    if not (undistilled is None or isinstance(undistilled, str | nn.Module)):
        raise TypeError(f"undistilled must be {wanted}, got a {type(undistilled).__name__}")


def has_adapters(pipeline: Any, networks: list[nn.Module]) -> bool:
    """Whether LoRAs are on that can be switched off in all of a pipeline's networks."""
    layers = _adapter_layers(*networks)
    return not _are_fused(pipeline, layers) and any(not it.disable_adapters for it in layers)


def check_fits(undistilled: Undistilled, pipeline: Any, networks: list[nn.Module]) -> None:
    """Raise ValueError if it cannot make the rounds of this pipeline.

    Args:
        networks: of the pipeline, that denoise.
    """
    check_undistilled(undistilled)
    if undistilled == ADAPTERS:
        _check_adapters(pipeline, networks)
    elif isinstance(undistilled, nn.Module):
        if len(networks) != 1:
            raise ValueError(
                f"{type(pipeline).__name__} has {len(networks)} networks that denoise, so one "
                f'undistilled network cannot stand for them: give "{ADAPTERS}" if they have LoRAs'
            )
        _check_network(undistilled, pipeline, networks[0])


def _check_adapters(pipeline: Any, networks: list[nn.Module]) -> None:
    layers = _adapter_layers(*networks)
    if _are_fused(pipeline, layers):
        names = ", ".join(sorted(getattr(pipeline, "fused_loras", ()))) or "a LoRA"
        raise ValueError(
            f'undistilled="{ADAPTERS}" cannot switch off what is fused into the weights, {names}: '
            "call pipe.unfuse_lora() first, or load the LoRA without fusing it"
        )
    if not layers:
        raise ValueError(
            f'undistilled="{ADAPTERS}" needs a network with a LoRA, and '
            f"{type(pipeline).__name__} has none loaded: load one, by pipe.load_lora_weights(...) "
            "or --lora, or give the network that this one was distilled from"
        )


def _are_fused(pipeline: Any, layers: list[Any]) -> bool:
    return bool(getattr(pipeline, "num_fused_loras", 0)) or any(it.merged for it in layers)


def _check_network(undistilled: nn.Module, pipeline: Any, network: nn.Module) -> None:
    given, own = uncompiled(undistilled), uncompiled(network)
    if given is own:
        raise ValueError(
            "undistilled is the pipeline's own network: give the one that it was distilled from"
        )
    if type(given) is not type(own):
        raise ValueError(
            f"undistilled is a {type(given).__name__}, and {type(pipeline).__name__} denoises with "
            f"a {type(own).__name__}: give the network that this one was distilled from"
        )
    for name in READS:
        theirs, ours = (getattr(getattr(it, "config", None), name, None) for it in (given, own))
        if theirs != ours:
            raise ValueError(
                f"undistilled has {name} {theirs!r} and the pipeline's network {ours!r}, so it "
                "cannot be called in its place: give the network that this one was distilled from"
            )
    _check_place(given, own, pipeline)


def _check_place(given: nn.Module, own: nn.Module, pipeline: Any) -> None:
    """Raise ValueError if its weights are of another precision, or not where the latents are."""
    dtypes = [getattr(it, "dtype", None) for it in (given, own)]
    are_quantized = any(getattr(it, "is_quantized", False) for it in (given, own))
    if dtypes[0] != dtypes[1] and not are_quantized:
        raise ValueError(
            f"undistilled has {dtypes[0]} weights and the pipeline's network {dtypes[1]}: load it "
            f"with dtype={dtypes[1]}"
        )
    if any(hasattr(it, hook) for it in given.modules() for hook in HOOKS):
        return  # which move it
    device = getattr(pipeline, "_execution_device", None)
    place = next((it.device for it in given.parameters()), device)
    if device is not None and place is not None and not _are_one(place, device):
        raise ValueError(
            f"undistilled is on {place}, and the pipeline computes on {device}: call "
            f'undistilled.to("{device}"), or accelerate.cpu_offload_with_hook(undistilled, '
            f'"{device}") to move it there when it is called'
        )


def _are_one(place: torch.device, other: torch.device) -> bool:
    """Whether two devices are the same; "cuda" is whichever is current."""
    return place.type == other.type and (
        place.index == other.index or None in (place.index, other.index)
    )


def _adapter_layers(*networks: nn.Module) -> list[Any]:
    """The layers of networks that have a LoRA."""
    loaded = [it for it in networks if getattr(uncompiled(it), "peft_config", None)]
    if not loaded:
        return []
    from peft.tuners.tuners_utils import BaseTunerLayer  # of an extra, which has loaded them

    return [it for one in loaded for it in one.modules() if isinstance(it, BaseTunerLayer)]
