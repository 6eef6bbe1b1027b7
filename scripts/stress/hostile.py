"""Values that no command expects, and damage to files."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import click

NUMBERS = (
    *("-1", "0", "1", "2", "3", "7", "0.5", "-0.0", "1e-320", "1e308", "1e999", "nan", "inf"),
    *("2147483648", "9223372036854775807", "9223372036854775808", "1" + "0" * 40, "٣", "+1"),
    *("", " ", "x", "0x10", "1_0", "1e3", "None", "--help", "-", "\udcff", "🐈", "1,5"),
)
PATHS = (
    *("", ".", "..", "/", "/dev/null", "/proc/self/mem", "no/such", "a\nb", "x" * 300, "\udcff"),
    *("~", "-", "--", "prompts.txt", "prompts.jsonl", "prompts.csv", "run", "window.safetensors"),
    *("other", "../outside", "🐈", "model", "probe", "run/metadata.jsonl", "*", "$(id)", "con"),
    *("settings.json", "attributes.json", "labelled", "features.npy", "features.safetensors"),
)
FAR = ("/", "..")
"""What paths begin with that must not be written to."""

PROMPTS = (
    *PATHS,
    *("cat", "<script>", "=1+1", "\u202eabc", "e\u0301", "a" * 10_000, "\ud800"),
)
SMALL = ("-1", "0", "1", "2", "", "x", "nan", "1.5", "-")
"""Where a large number asks for much work."""

MODELS = (*PATHS, "nobody/nothing", "a/b/c", "no spaces/allowed here", "-/-", "x" * 200 + "/y")
IMAGE_EMBEDDERS = (
    *("pixels", "pixels:4", "pixels:0", "pixels:-1", "pixels:x", "pixels:٣", "pixels:", ":", ""),
    *("dinov2", "dinov2:model", "clip", "clip:no/such", "clip:model", "clip:hf-hub:x", "eyes"),
    *("probe:probe", "probe:", "probe:run", "inception:", "inception:window.safetensors"),
    *("swav:features.safetensors", "timm:resnet18", "timm:", "timm:no/such", "timm:\udcff"),
    *("probe:a\nb", "pixels:4:4", "inception:x.safetensors", "timm:model"),
)
PROMPT_EMBEDDERS = (
    *("clip", "clip:no/such", "clip:ViT-B-32/nothing", "sdxl:", "sdxl:run", "sdxl:\udcff", "sdxl"),
    *("sentence-transformers:", "sentence-transformers:model", "transformers:no/such", "words"),
    *("transformers:model", "transformers:probe", "", ":", "pixels"),
)
VALUES: dict[str, tuple[str, ...]] = {
    "--model": MODELS,
    "--variant": ("fp16", "", "..", "/", "\udcff", "x" * 300, "{}", "*"),
    "--device": ("cpu", "cuda", "cuda:99", "meta", "mps", "abacus", "", "cpu:0", "\udcff", "-1"),
    "--negative-prompt": PROMPTS,
    "--image-embedder": IMAGE_EMBEDDERS,
    "--prompt-embedder": PROMPT_EMBEDDERS,
    "--clip": (*IMAGE_EMBEDDERS[:12], "clip:", "clip:probe", "clip:\udcff"),
    "--attribute-judge": ("clip", "clip:model", "labels", "", "probe", "clip:", "\udcff"),
    "--faithfulness": (
        *("own-prompt", "own-model", "clip", "clip:no/such", "probe:", "probe:probe", "probe:run"),
        *("beauty", "", ":", "own-prompt:x", "seed", "prompt", "seconds", "diversity_scale"),
        *("diversity_objective", "file_name", "\udcff"),
    ),
    "--method": (
        *("ours", "ours=", "ours=0.5", "ours=0", "ours=nan", "ours=1e-320", "ours=2", "ours=0.5,"),
        *("ours=0.5,0.50000000000001", "ours=-0.0", "magic", "magic=1", "=", "=1", "", "ours=٣"),
        *("select=2", "select=1", "select=0", "select=1.5", "select=nan", "select=inf", "cads"),
        *("select-previews=2", "select-previews=-1", "cads=1e308", "cads=-1", "cads=1,x"),
        *("limited-interval=0.5", "limited-interval=0,1", "limited-interval=1.5", "ours=1=1"),
        *("particle-guidance=1", "particle-guidance=1e308", "particle-guidance=1e999"),
        *("seed-variance=1", "seed-variance=1e308", "seed-variance=-1", "unguided", "\udcff"),
    ),
    "--images-per-prompt": SMALL,
    "--steps": SMALL,
    "--trials": SMALL,
    "--protocol-prompts": SMALL,
    "--pictures": (*SMALL, "10", "20"),
    "--workers": SMALL,
}
"""By option; others get values of their type."""

TOKENS = (
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b"\r", b"\0", b"\xff"),
    b"\xef\xbb\xbf",
    *(b"null", b"-1", b"1e999", b"NaN", b"9" * 50, b"\\ud800", b"../", b"/", b"{}", b"true"),
    *(b"[" * 2000, b'"prompt"', b'"file_name"', b'"done"', b'"size"', b'"latent_shape"'),
)
JSON_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 0.5, -1e308, float("inf"), float("nan"), 2**63, 10**400),
    *("", "x", "0", "\ud800", "../x", "/", "a\0b", "x" * 1000, [], {}, [[]], [None], [1, 2]),
    *({"x": 1}, ["x", "y"], ["diffusers", "X"], {"": {}}, [{"x": []}]),
)


def value_for(option: click.Option, rng: random.Random, written: tuple[str, ...]) -> str:
    """A value of an option; for those in `written`, a path that may be written to."""
    name = option.opts[0]
    if name in VALUES:
        return rng.choice(VALUES[name])
    if isinstance(option.type, click.Choice):
        return rng.choice([*option.type.choices, "x"])
    if isinstance(option.type, click.Path):
        return rng.choice([path for path in PATHS if not (name in written and is_far(path))])
    return rng.choice(NUMBERS)


def is_far(path: str) -> bool:
    return path.startswith(FAR)


def spoil(path: Path, rng: random.Random) -> None:
    """Damage a file, delete it, or put a folder in its place."""
    content = path.read_bytes()
    path.unlink()  # it may be a link
    chance = rng.random()
    if chance < 0.1:
        path.mkdir()
    elif chance > 0.2:
        path.write_bytes(content)
        damage(path, rng)


def damage(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    if path.suffix in (".json", ".jsonl", ".journal") and rng.random() < 0.6:
        content = with_other_values(content, rng, lines=path.suffix != ".json")
    else:
        content = damaged(content, rng)
    path.write_bytes(content)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Bytes with some left out, repeated, inserted or changed."""
    for _ in range(rng.randint(1, 4)):
        at, end = sorted(rng.randint(0, len(content)) for _ in range(2))
        end = min(end, at + 50) if rng.random() < 0.8 else end
        content = rng.choice(
            (
                content[:at] + content[end:],
                content[:at],
                content[:at] + rng.choice(TOKENS) + content[at:],
                content[:at] + rng.choice(TOKENS) + content[end:],
                content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :],
                content[:end] + content[at:],
            )
        )
    return content


def with_other_values(content: bytes, rng: random.Random, *, lines: bool) -> bytes:
    """JSON, or JSON lines, in which a value is another or left out."""
    parts = content.splitlines() if lines else [content]
    if not parts:
        return content
    place = rng.randrange(len(parts))
    parts[place] = json.dumps(_replaced(json.loads(parts[place]), rng)).encode()
    return b"\n".join(parts) + b"\n"


def _replaced(value: Any, rng: random.Random) -> Any:
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return rng.choice(JSON_VALUES)
    key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
    if rng.random() < 0.15:
        del value[key]
    else:
        value[key] = _replaced(value[key], rng)
    return value


def copy_linked(folder: Path, to: Path) -> None:
    """Copy a model, its weights as links."""
    shutil.copytree(
        folder,
        to,
        copy_function=lambda source, copy: (
            Path(copy).symlink_to(source)
            if Path(source).suffix == ".safetensors"
            else shutil.copyfile(source, copy)
        ),
    )
