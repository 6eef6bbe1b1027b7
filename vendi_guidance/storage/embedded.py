"""Prompts that programs write into their images."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from PIL import Image

SETTINGS = re.compile(r"(?:^|\n)(?=Negative prompt: |Steps: )")  # after Automatic1111's prompt
LEADS = (
    *("positive", "guider", "conditioning", "conditioning_1", "conditioning_to"),
    *("text", "text_g", "t5xxl", "clip_l", "prompt", "string", "value"),
)
"""Inputs of ComfyUI's nodes that lead from a sampler to the prompt, or are the prompt."""


def embedded_prompt(file: Path) -> tuple[str, str] | None:
    """The program and the prompt in an image file's header; None if there is none."""
    with suppress(Exception):  # anything may stand there
        with Image.open(file, formats=("PNG", "JPEG", "WEBP")) as image:
            texts = dict(image.info)
            if "exif" in texts and (comment := image.getexif().get_ifd(0x8769).get(0x9286)):
                texts["parameters"] = comment[8:].decode("utf-16-be")  # after b"UNICODE\0"
        for name, (program, read) in READERS.items():
            if name in texts and (prompt := str(read(texts[name]) or "").strip()):
                return program, prompt
    return None


def _from_graph(text: str) -> str | None:
    """The text that a sampler's positive input leads to."""
    graph: dict[str, Any] = json.loads(text)
    todo = [key for key, node in graph.items() if "Sampler" in node["class_type"]]
    seen = set()
    while todo:
        key = todo.pop()
        inputs = {} if key in seen else graph[key]["inputs"]
        seen.add(key)
        for value in (inputs[name] for name in LEADS if inputs.get(name)):
            if isinstance(value, str):
                return value
            todo.append(value[0])
    return None


READERS = {
    "invokeai_metadata": ("InvokeAI", lambda text: json.loads(text)["positive_prompt"]),
    "parameters": ("Automatic1111 or Forge", lambda text: SETTINGS.split(text)[0]),
    "prompt": ("ComfyUI", _from_graph),
}
"""Key of a text -> the program that writes it, and how to read a prompt from it."""
