"""What decides a score, in words to print beside it."""

from pathlib import PurePath
from typing import Any

from vendi_guidance.evaluation.inputs import NEIGHBOURS
from vendi_guidance.scores.manifold import ManifoldScores


def basis_of(name: str, settings: dict[str, Any]) -> str:
    """What decides the score of this name, from a report's settings."""
    n = f"n = {settings['images']:,}"
    pictures = embedder_in_words(settings["image_embedder"])
    if name == "seconds_per_image":
        return n
    if name in ("fidelity", "looks_per_prompt"):
        return f"labels; n = {settings['labeled']:,}"
    if name == "clip_score":
        return f"{embedder_in_words(settings['clip'])}; {n}"
    if name == "in_batch_similarity":
        return f"{pictures}; {n}"
    if name in ("kernel_distance", "frechet_distance"):
        return f"{pictures}; {n}, {settings['references']:,} references"
    if name in ManifoldScores._fields:
        k = 1 if name == "authenticity" else NEIGHBOURS
        return f"{pictures}, k = {k}; {n}, {settings['references']:,} references"
    words = [f"{pictures}, {kernel_in_words(settings['kernel_image'])}"]
    if "conditional" in name or "information" in name:
        prompts = embedder_in_words(settings["prompt_embedder"])
        words.append(f"prompts by {prompts}, {kernel_in_words(settings['kernel_prompt'])}")
    if "rke" in name:
        return "; ".join([*words, f"order 2, {n}"])
    t = settings["truncation"] if name.startswith("truncated") else None
    kept = "all eigenvalues" if t is None else f"t = {t:,}"
    way = settings["spectrum"]
    how = {"Exact": "", "Lanczos": " by Lanczos", "Nystrom": f" of {way.get('rank')} landmarks"}
    return "; ".join([*words, f"{kept}{how[way['name']]}, {n}"])


def embedder_in_words(embedder: dict[str, Any]) -> str:
    """Its name and its weights', without the folders that these lie in."""
    weights = embedder.get("settings", {}).get("weights")
    if not isinstance(weights, str):
        return str(embedder["name"])
    is_path = weights.count("/") > 1 or "\\" in weights
    return f"{embedder['name']} {PurePath(weights).name if is_path else weights}"


def kernel_in_words(kernel: dict[str, Any]) -> str:
    if kernel["name"] != "Gaussian":
        return str(kernel["name"]).lower()
    chosen = f" ({kernel['chosen']})" if "chosen" in kernel else ""
    return f"Gaussian σ = {kernel['sigma']:.4g}{chosen}"
