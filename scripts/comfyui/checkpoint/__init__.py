"""A node pack for `serve` that replaces every checkpoint by the demo model, at its own size.

ComfyUI cannot load the demo model as a checkpoint, and its images are only 64 pixels wide.
"""

from typing import Any

import nodes
import torch

from scripts.comfyui.demo import Demo

demo = Demo()


def load_checkpoint(self: Any, ckpt_name: str) -> tuple[Any, Any, Any]:
    return demo.model, demo, demo


def generate(self: Any, width: int, height: int, batch_size: int = 1) -> tuple[Any]:
    return ({"samples": torch.zeros(batch_size, 4, 16, 16)},)


nodes.CheckpointLoaderSimple.load_checkpoint = load_checkpoint
nodes.EmptyLatentImage.generate = generate
NODE_CLASS_MAPPINGS: dict[str, Any] = {}
