"""Prompts in the headers of images, as other programs write them."""

import json

import pytest
from PIL import Image

from vendi_guidance.storage.captions import find_captions
from vendi_guidance.storage.embedded import embedded_prompt
from vendi_guidance.storage.imagefolder import save_image
from vendi_guidance.storage.images import list_files

PARAMETERS = "a cat,\nasleep\nNegative prompt: a dog\nSteps: 20, Sampler: Euler"


def node(kind, **inputs):
    return {"class_type": kind, "inputs": inputs}


GRAPH = {  # as ComfyUI's API format: text and negative text, two samplers, a loop
    "1": node("CLIPTextEncode", text=["7", 0], clip=["9", 0]),
    "2": node("CLIPTextEncode", text="blurry", clip=["9", 0]),
    "3": node("ControlNetApplyAdvanced", positive=["1", 0], negative=["2", 0]),
    "4": node("KSampler", positive=["3", 0], negative=["3", 1], latent_image=["6", 0], seed=1),
    "6": node("KSamplerAdvanced", positive=["3", 0], negative=["2", 0]),
    "7": node("PrimitiveString", value="a cat"),
}
FLUX = {
    "1": node("SamplerCustomAdvanced", guider=["2", 0], sampler=["3", 0]),
    "2": node("BasicGuider", conditioning=["4", 0], model=["5", 0]),
    "4": node("FluxGuidance", conditioning=["6", 0], guidance=3.5),
    "6": node("CLIPTextEncodeFlux", clip_l="", t5xxl="a dog", guidance=3.5),
}
LOOP = {"1": node("KSampler", positive=["2", 0]), "2": node("A", positive=["1", 0])}


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ({"parameters": PARAMETERS}, ("Automatic1111 or Forge", "a cat,\nasleep")),
        ({"parameters": "Steps: 20, Sampler: Euler"}, None),
        ({"prompt": json.dumps(GRAPH), "workflow": "{}"}, ("ComfyUI", "a cat")),
        ({"prompt": json.dumps(FLUX)}, ("ComfyUI", "a dog")),
        ({"invokeai_metadata": '{"positive_prompt": "a cat", "seed": 1}'}, ("InvokeAI", "a cat")),
        *(({"prompt": text}, None) for text in (json.dumps(LOOP), "[" * 9999, "[1]", "a cat", "")),
        *(({"invokeai_metadata": text}, None) for text in ("{}", '{"positive_prompt": " "}', "x")),
    ],
)
def test_the_prompt_is_found_in_the_text_chunks_of_a_png(tmp_path, texts, found):
    save_image(tmp_path / "a.png", Image.new("RGB", (2, 2)), texts)
    assert embedded_prompt(tmp_path / "a.png") == found


def test_the_prompt_is_found_in_the_comment_of_a_jpeg_and_said_to_be(tmp_path):
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9286] = b"UNICODE\0" + PARAMETERS.encode("utf-16-be")
    (tmp_path / "2026-01-01").mkdir()
    image = Image.new("RGB", (2, 2))
    image.save(tmp_path / "2026-01-01/0.jpg", exif=exif)
    save_image(tmp_path / "2026-01-01/1.png", image, {"prompt": json.dumps(FLUX)})
    (tmp_path / "2026-01-01/2.png").write_bytes(b"broken")
    found = find_captions(tmp_path, list_files(tmp_path)[0])
    said = "the metadata that Automatic1111 or Forge, ComfyUI wrote into the images"
    assert (found.source, [*found.of.values()]) == (said, ["a cat,\nasleep", "a dog"])
