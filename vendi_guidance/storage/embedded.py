"""Prompts that programs write into images: where each writes, and in which form."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import reduce
from html import unescape
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

from PIL import ExifTags, Image

from vendi_guidance.storage.images import use_image

SETTINGS = re.compile(r"(?:^|\n)(?=Negative prompt:|(?:[A-Z][\w ]*: [^,\n]*, )*Steps: \d)")
"""Begins what Automatic1111 writes after the prompt."""
RAW = re.compile(r'(?:^|, )Raw prompt: ("(?:[^"\\]|\\.)*"|[^,\n]*)')  # Fooocus, before styles
SEED = re.compile(r"\bseed[\"']?\s*[:=]\s*[\"']?-?\d|--seed[ =]-?\d", re.IGNORECASE)
LEADS = (
    *("positive", "guider", "conditioning", "user_prompt", "text_positive", "populated_text"),
    *("text", "text_g", "t5xxl", "clip_l", "prompt", "string", "value"),
)
"""Inputs of ComfyUI's nodes that lead from a sampler to the prompt, or are the prompt."""
PARTS = re.compile(r"(conditioning|text|string|prompt|arg)_?(\w|\d+|to|from)")  # are joined
ASIDE = re.compile(r".*(negative|clip|model|vae|image|latent|mask|control|sampl|sigma|noise).*")


class Embedded(NamedTuple):
    """What a program wrote into an image."""

    program: str
    prompt: str
    unread: tuple[str, ...] = ()  # places of texts that have no known form; then there is no prompt


def embedded_prompt(file: Path) -> Embedded | None:
    """The prompt in an image file's header; None if no program wrote into it."""
    try:
        texts = use_image(file, _texts)
    except Exception:  # not an image
        return None
    for program, keys in PLAIN.items():
        if keys <= {*texts} and texts["prompt"].strip():
            return Embedded(program, texts["prompt"].strip())
    for place in filter(texts.__contains__, PLACES):
        if (found := known_prompt(texts[place], place)) is not None:
            return found
    unread = tuple(place for place in PLACES if texts.get(place, "").strip())
    return Embedded("", "", unread) if unread else None


def known_prompt(text: str, place: str = "") -> Embedded | None:
    """The prompt in a text that a program writes to this place, or anywhere; None if it is of no
    known form."""
    for program, places, read in FORMS:
        with suppress(Exception):  # anything may stand there
            is_there = place in places if place else read is not str
            found = read(text) if is_there else None
            if isinstance(found, str) and is_prompt(found):
                return Embedded(program, found.strip())
    return None


def is_prompt(text: str) -> bool:
    """Whether a text can be a prompt: it is not empty, no JSON object or list, and has no seed."""
    try:
        is_json = isinstance(json.loads(text), (dict, list))
    except ValueError:
        is_json = False
    return bool(text.strip()) and not is_json and SEED.search(text) is None


def _texts(image: Image.Image) -> dict[str, str]:
    """The texts of an image by their places: keys of PNG, names of EXIF tags."""
    texts = {str(key): text for key, text in image.info.items() if isinstance(text, str)}
    if not texts.get("Software", "").startswith("NovelAI"):
        texts.pop("Description", None)
    with suppress(Exception):  # broken metadata
        exif = image.getexif()
        found = {**exif, **exif.get_ifd(ExifTags.IFD.Exif)}
        for tag in (ExifTags.Base.Make, ExifTags.Base.Model, ExifTags.Base.ImageDescription):
            place, _, graph = str(found.get(tag, "")).partition(":")  # ComfyUI, in WebP
            texts.setdefault(place.lower() if graph else "", graph)
        for tag in (ExifTags.Base.UserComment, ExifTags.Base.ImageDescription):
            texts |= {tag.name: _decoded(found[tag])} if tag in found else {}
    xmp = image.info.get("xmp", image.info.get("XML:com.adobe.xmp", ""))
    xmp = xmp.decode("utf-8", "replace") if isinstance(xmp, bytes) else xmp
    comment = xmp.partition("exif:UserComment")[2].partition("<rdf:li")[2].partition(">")[2]
    texts.setdefault("UserComment", unescape(comment.partition("</rdf:li>")[0]))
    return texts


def _decoded(text: Any) -> str:
    """The text of an EXIF comment, which begins with its encoding; UTF-16 has either order."""
    if not isinstance(text, bytes):
        return str(text)
    if text.startswith(b"UNICODE\0"):
        both = [text[8:].decode(f"utf-16-{order}", "replace") for order in ("be", "le")]
        return max(both, key=lambda text: sum(map(str.isascii, text)))
    return text.removeprefix(b"ASCII\0\0\0").lstrip(b"\0").decode("utf-8", "replace")


def _at(*path: str) -> Callable[[str], Any]:
    """Reads what stands at this path in a JSON object."""
    return lambda text: reduce(getitem, path, json.loads(text))


def _from_settings(text: str) -> str | None:
    return text[: found.start()] if (found := SETTINGS.search(text)) else None


def _from_styled(text: str) -> str | None:
    raw = RAW.search(text) if "Version: Fooocus" in text else None
    return raw and (json.loads(raw[1]) if raw[1].startswith('"') else raw[1])


def _from_invoke(text: str) -> str:
    about = json.loads(text)
    both = about["positive_prompt"], about.get("positive_style_prompt")
    return ", ".join(filter(None, dict.fromkeys(both)))


def _from_old_invoke(text: str) -> str:
    """Without the negative prompt in brackets."""
    prompt = text[1 : text.index('" -')] if text[:1] == '"' else _at("image", "prompt")(text)
    prompt = prompt if isinstance(prompt, str) else prompt[0]["prompt"]
    return re.sub(r"\[[^\]]*\]", "", prompt)


def _from_novelai(text: str) -> str | None:
    about = json.loads(text)
    about = json.loads(about["Comment"]) if "Comment" in about else about  # in WebP
    if "uc" not in about:
        return None
    return about.get("prompt") or about["v4_prompt"]["caption"]["base_caption"]


def _from_workflow(text: str) -> str | None:
    """From ComfyUI's own file: widgets have no names, so the first text of each node is taken."""
    flow, graph = json.loads(text), {}
    origins = {link[0]: str(link[1]) for link in flow["links"]}
    for node in flow["nodes"]:
        texts = [it for it in node.get("widgets_values") or () if isinstance(it, str)]
        links = {one["name"]: origins.get(one.get("link")) for one in node.get("inputs") or ()}
        inputs: dict[str, Any] = {"text": texts[0]} if texts else {}
        inputs |= {name: [origin, 0] for name, origin in links.items() if origin is not None}
        graph[str(node["id"])] = {"class_type": node["type"], "inputs": inputs}
    return _prompt_of(graph)


def _prompt_of(graph: Mapping[str, Any]) -> str | None:
    """The text that the positive input of ComfyUI's last sampler leads to."""
    samplers = (key for key in reversed([*graph]) if "Sampler" in graph[key].get("class_type", ""))
    return next(filter(None, (_lead(graph, [key], set()) for key in samplers)), None)


def _lead(graph: Mapping[str, Any], source: Any, seen: set[str]) -> str:
    """The text at an input of a node: itself, or what its link leads to."""
    if isinstance(source, str):
        return source.strip()
    if not (isinstance(source, list) and source and source[0] in graph) or source[0] in seen:
        return ""
    seen.add(source[0])
    inputs = graph[source[0]]["inputs"]
    for name in filter(inputs.get, LEADS):
        if found := _lead(graph, inputs[name], seen):
            return found
    between = inputs.get("delimiter", inputs.get("separator", ", "))
    texts = [_lead(graph, inputs[name], seen) for name in inputs if PARTS.fullmatch(name)]
    if any(texts):
        return str(between).join(filter(None, dict.fromkeys(texts)))
    links = [it for name, it in inputs.items() if isinstance(it, list) and not ASIDE.match(name)]
    return next(filter(None, (_lead(graph, link, seen) for link in links)), "")


PLAIN = {
    "vendi-guidance": {"prompt", "seed", "versions"},
    "Easy Diffusion": {"prompt", "seed", "negative_prompt"},
}
"""Programs that write the prompt itself, and other texts by which they are known."""
COMMENTS = ("parameters", "UserComment", "ImageDescription", "Comment")
FORMS: tuple[tuple[str, tuple[str, ...], Callable[[str], Any]], ...] = (
    ("InvokeAI", ("invokeai_metadata",), _from_invoke),
    ("InvokeAI", ("sd-metadata", "Dream"), _from_old_invoke),
    ("NovelAI", ("Comment", "UserComment"), _from_novelai),
    ("NovelAI", ("Description",), str),
    ("SwarmUI", COMMENTS, _at("sui_image_params", "prompt")),
    ("Draw Things", COMMENTS, _at("c")),
    ("Fooocus or Easy Diffusion", COMMENTS, _at("prompt")),
    ("RuinedFooocus", COMMENTS, _at("Prompt")),
    ("Fooocus", COMMENTS, _from_styled),
    ("Automatic1111 or Forge", COMMENTS, _from_settings),
    ("ComfyUI", ("prompt",), lambda text: _prompt_of(json.loads(text))),
    ("ComfyUI", ("workflow",), _from_workflow),
)
"""Program, the places where it writes, and how to read the prompt from a text there; the first that
succeeds is taken."""
PLACES = tuple(dict.fromkeys(place for _, places, _ in FORMS for place in places))
