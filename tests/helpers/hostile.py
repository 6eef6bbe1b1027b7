"""Hypothesis strategies for unexpected option values and damaged files."""

import json
import re
from pathlib import Path
from typing import Any

import click
import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from safetensors.numpy import save_file

from vendi_guidance.features.probe import Probe

NUMBERS = (
    *("-1", "0", "1", "2", "3", "7", "0.5", "-0.0", "1e-320", "1e308", "1e999", "nan", "inf"),
    *("2147483648", "9223372036854775807", "9223372036854775808", "1" + "0" * 40, "٣", "+1"),
    *("", " ", "x", "0x10", "1_0", "1e3", "None", "--help", "-", "\udcff", "🐈", "1,5"),
)
PATHS = (
    *("", ".", "..", "/", "/dev/null", "/proc/self/mem", "no/such", "a\nb", "x" * 300, "\udcff"),
    *("~", "-", "--", "prompts.txt", "prompts.jsonl", "prompts.csv", "run", "window.safetensors"),
    *("other", "../outside", "🐈", "model", "probe", "run/metadata.jsonl", "*", "$(id)", "con"),
    *("attributes.json", "features.npy", "features.safetensors"),
)
FAR = ("/", "..")
"""Prefixes of paths that must not be written to."""

PROMPTS = (*PATHS, *("cat", "<script>", "=1+1", "\u202eabc", "e\u0301", "a" * 10_000, "\ud800"))
SMALL = ("-1", "0", "1", "2", "", "x", "nan", "1.5", "-")
"""For options where a large number means much work."""

MODELS = (*PATHS, "nobody/nothing", "a/b/c", "no spaces/allowed here", "-/-", "x" * 200 + "/y")
KINDS = ("pixels", "probe", "dinov2", "clip", "timm", "sdxl", "transformers", "own-prompt", "")
PLACES = ("", ":", ":4", ":٣", ":model", ":probe", ":run", ":no/such", ":a\nb", ":\udcff")
EMBEDDERS = tuple(kind + place for kind in KINDS for place in PLACES)
VALUES: dict[str, tuple[str, ...]] = {
    "--model": MODELS,
    "--lora": (*MODELS, "nobody/nothing/x.safetensors", "window.safetensors", "model/unet"),
    "--variant": ("fp16", "", "..", "/", "\udcff", "x" * 300, "{}", "*"),
    "--device": ("cpu", "cuda", "cuda:99", "meta", "mps", "abacus", "", "cpu:0", "\udcff", "-1"),
    "--negative-prompt": PROMPTS,
    **dict.fromkeys(["--image-embedder", "--prompt-embedder"], EMBEDDERS),
    "--clip": EMBEDDERS,
    "--faithfulness": (*EMBEDDERS, "seed", "diversity_cfg", "file_name"),
    **dict.fromkeys(["--images-per-prompt", "--steps", "--workers"], SMALL),
}
"""Option -> values; other options get values of their type."""

TOKENS = (
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b"\r", b"\0", b"\xff"),
    b"\xef\xbb\xbf",
    *(b"null", b"-1", b"1e999", b"NaN", b"9" * 50, b"\\ud800", b"../", b"/", b"{}", b"true"),
    *(b"[" * 2000, b'"prompt"', b'"file_name"', b'"done"', b'"size"', b'"shapes"'),
)
JSON_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 0.5, -1e308, float("inf"), float("nan"), 2**63, 10**400),
    *("", "x", "0", "\ud800", "../x", "/", "a\0b", "x" * 1000, [], {}, [[]], [None], [1, 2]),
    *({"x": 1}, ["x", "y"], ["diffusers", "X"], {"": {}}, [{"x": []}]),
)


def values_of(option: click.Option, written: tuple[str, ...]) -> SearchStrategy[str]:
    """Values of an option; options in `written` get only paths that may be written to."""
    name = option.opts[0]
    if name in VALUES:
        return st.sampled_from(VALUES[name])
    if isinstance(option.type, click.Choice):
        return st.sampled_from([*option.type.choices, "x"])
    if isinstance(option.type, click.Path):
        near = [path for path in PATHS if not (name in written and path.startswith(FAR))]
        return st.sampled_from(near)
    return st.sampled_from(NUMBERS)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes with some of them deleted, repeated, inserted or changed."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        end = min(len(content), at + draw(st.integers(0, 50) | st.integers(0, len(content))))
        inserted = draw(st.sampled_from(TOKENS) | st.binary(max_size=1))
        rest = draw(st.sampled_from([content[end:], content[at:], b""]))
        content = content[:at] + inserted + rest
    return content


@st.composite
def with_another_value(draw: st.DrawFn, value: Any) -> Any:
    """A JSON value in which one value is replaced or deleted."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(JSON_VALUES))
    value = value.copy()
    key = draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
    if draw(st.integers(0, 6)) == 0:
        del value[key]
    else:
        value[key] = draw(with_another_value(value[key]))
    return value


@st.composite
def with_another_line(draw: st.DrawFn, content: bytes) -> bytes:
    """JSON lines in which one value is replaced or deleted."""
    lines = content.splitlines()
    place = draw(st.integers(0, len(lines) - 1))
    lines[place] = json.dumps(draw(with_another_value(json.loads(lines[place])))).encode()
    return b"\n".join(lines) + b"\n"


@st.composite
def with_another_header(draw: st.DrawFn, content: bytes) -> bytes:
    """A safetensors file with a value replaced or deleted in its header, or in our own header."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    own = header.get("__metadata__", {}).get("header")
    if own is not None and draw(st.booleans()):
        header["__metadata__"]["header"] = json.dumps(draw(with_another_value(json.loads(own))))
    else:
        header = draw(with_another_value(header))
    new = json.dumps(header).encode()
    return len(new).to_bytes(8, "little") + new + content[8 + size :]


@st.composite
def spoil(draw: st.DrawFn, path: Path) -> None:
    """Damage a file, delete it, or put a folder in its place."""
    content = path.read_bytes()
    path.unlink()  # it may be a link
    fate = draw(st.integers(0, 9))
    if fate == 0:
        path.mkdir()
    elif fate > 1:
        with_sense = {
            ".json": with_another_line,  # reformatted below as one line
            ".jsonl": with_another_line,
            ".safetensors": with_another_header,
        }.get(path.suffix)
        if path.suffix == ".json":
            content = json.dumps(json.loads(content)).encode()
        is_plain = with_sense is None or not content or draw(st.integers(0, 2)) == 0
        content = draw(damaged(content) if is_plain else with_sense(content))
        if "model" in path.parts and path.suffix == ".json":
            content = re.sub(rb"\d{6,}", b"7", content)  # large numbers ask for large networks
        path.write_bytes(content)


def write_inputs() -> None:
    """Write a valid file of every kind that commands read but do not write."""
    Path("prompts.txt").write_text("a cat\n\na dog\na café\n")
    lines = [json.dumps({"prompt": text, "id": 3}) for text in ("a cat", "a\ndog", "🐈")]
    Path("prompts.jsonl").write_text("\n".join(lines))
    Path("prompts.csv").write_text('id,prompt\n1,cat\n2,"a ""big"" dog,\nasleep"\n')
    of_all = {"tone": ["light", "dark"], "light": {"dim": 1, "bright": 2.5}}
    split = {"attributes": of_all, "prompts": {"a cat": {"seed": ["0", "1"]}}}
    Path("attributes.json").write_text(json.dumps(split))
    features = np.random.default_rng(0).normal(size=(8, 48)).astype(np.float32)
    np.save("features.npy", features)
    np.savez("features.npz", features=features)
    save_file({"features": features}, "features.safetensors")
    probe = Probe(["a cat", "a dog"], [("tone", ["light", "dark"])], "{concept}, {tone}")
    probe.save_pretrained("probe")
