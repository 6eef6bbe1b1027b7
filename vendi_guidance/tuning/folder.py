"""A search's folder: how it began, with which prompts, so that it goes on as the same search."""

from dataclasses import asdict
from pathlib import Path

from filelock import FileLock

from vendi_guidance.runs.manifest import MANIFEST, Manifest, versions
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.setup import Model, inputs_of
from vendi_guidance.storage.prompt_files import open_prompts, save_prompts
from vendi_guidance.tuning.study import Search

PROMPTS = "prompts.jsonl"


def manifest_of(
    options: RunOptions, model: Model, wanted: Search, judged: dict[str, str], prompts: list[str]
) -> Manifest:
    """What must be the same when the search goes on."""
    sampling = model.sampling.about
    settings = asdict(wanted) | sampling | judged
    settings |= {"images_per_prompt": options.images_per_prompt, "prompts": len(prompts)}
    settings |= {"batch_size": options.batch_size, "dtype": model.options.dtype}
    return Manifest(settings, dict(inputs_of(model)), versions())


def begin(output: Path, manifest: Manifest, prompts: list[str]) -> None:
    """Begin a search in a folder, or go on with the one in it.

    Raises:
        ValueError: it began otherwise.
        FileExistsError: the folder holds something else.
    """
    # listed first: another process may be beginning the search, which locks, then says run.json
    visible = [path for path in output.glob("*") if path.name[0] != "."]
    if visible and not (output / MANIFEST).is_file():
        raise FileExistsError(f"--output {output} is not empty and has no search: name another")
    output.mkdir(parents=True, exist_ok=True)
    with FileLock(output / ".claims.lock"):
        if not (output / MANIFEST).is_file():
            manifest.save(output)
        differences = manifest.differences(Manifest.load(output))
        if not (output / PROMPTS).is_file():
            save_prompts(output / PROMPTS, prompts)
        if not differences and list(open_prompts(str(output / PROMPTS))) != prompts:
            differences = ["PROMPTS has other prompts"]
    if differences:
        raise ValueError(
            f"the search in {output} began with other settings: {'; '.join(differences)}; go on "
            "with the settings that it began with, or name another folder"
        )
