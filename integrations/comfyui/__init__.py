"""Vendi Guidance for ComfyUI: nodes that make the images of a batch differ from one another."""

from typing import Any

WEB_DIRECTORY = "./web"
"""Folder of the JavaScript that ComfyUI's page loads for these nodes."""


async def comfy_entrypoint() -> Any:
    """Called by ComfyUI to load the nodes of this folder."""
    try:
        import vendi_guidance  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "the package vendi_guidance is missing: install it into ComfyUI's Python with "
            "pip install --no-deps vendi-guidance, or with the path of a clone in place of its name"
        ) from error
    from .nodes import VendiGuidanceExtension

    return VendiGuidanceExtension()
