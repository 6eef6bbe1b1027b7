"""Commands given any options and damaged files: exit status 0, or 2 and one sentence."""

import os
import shutil
from collections.abc import Iterator
from contextlib import chdir, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import click
import huggingface_hub.constants
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from tests.helpers.commands import assert_refused, contents, invoke, succeeds
from tests.helpers.hostile import PATHS, PROMPTS, spoil, values_of, write_inputs
from vendi_guidance.commands import evaluate, generate, tune
from vendi_guidance.evaluation.batches import as_batch

WRITTEN = ("--output", "--window-out", "--cache")
"""Options that name what a command may write."""

DRAWN = ("--model", "model", "--device", "cpu", "--batch-size", "2", "--steps", "1")
JUDGED = ("--image-embedder", "pixels:4", "--prompt-embedder", "sdxl:model")
PROBE = ("--probe", "probe")


@dataclass(frozen=True)
class Hostile:
    """A command, given small work.

    Attributes:
        usual: a command line that works, without its folder.
        begun: the folder that it makes beforehand.
        files: patterns of what it reads, each with the options that make it do so; "{}" stands for
            the file, and in place of the first option for the command's argument.
    """

    command: click.Command
    usual: tuple[str, ...]
    begun: str
    files: tuple[tuple[str, tuple[str, ...]], ...]

    def words(self, *more: str, output: str = "new") -> list[str]:
        first, *usual = self.usual
        if more and not more[0].startswith("--"):
            first, *more = more
        named = () if "--output" in more else ("--output", output)
        return [first, *usual, *named, *more]


COMMANDS = {
    "generate": Hostile(
        generate.main,
        ("prompts.txt", *DRAWN),
        "run",
        (
            ("prompts.*", ("{}",)),
            ("run/*", ("--resume", "--output", "run")),
            ("run/**/*", ("--resume", "--output", "run")),
            ("window.safetensors", ("--window-in", "{}")),
            ("model/**/*", ()),
        ),
    ),
    "evaluate": Hostile(
        evaluate.main,
        ("run", *JUDGED, *PROBE),
        "report",
        (
            ("run/*", ()),
            ("run/*", ("run", "run", "--on-bad-image", "fail", "--workers", "1")),
            ("run/metadata.jsonl", ("--faithfulness", "seed")),
            ("attributes.json", ("--attributes", "{}")),
            ("features.*", ("--reference", "{}")),
            ("probe/*", ("--image-embedder", "probe:probe")),
            ("cache/**/*", ("--cache", "cache")),
            ("model/**/*", ()),
        ),
    ),
    "tune": Hostile(
        tune.main,
        ("prompts.txt", *DRAWN, "--images-per-prompt", "2", *JUDGED, *PROBE, "--keep", "0.01"),
        "tuned",
        (
            ("prompts.*", ("{}",)),
            ("model/**/*", ()),
            ("probe/*", ()),
            ("tuned/*", ("--output", "tuned")),
            ("tuned/**/*", ("--output", "tuned")),
            ("attributes.json", ("--attributes", "{}")),
        ),
    ),
}


@pytest.fixture(scope="module")
def kept(tiny_sdxl_folder, tmp_path_factory) -> Iterator[Path]:
    """Valid files of every kind, in "place"; and a file beside it that no command may touch."""
    home = tmp_path_factory.mktemp("hostile") / "kept"
    place = home / "place"
    place.mkdir(parents=True)
    (home / "precious").write_text("untouched")
    shutil.copytree(tiny_sdxl_folder, place / "model", copy_function=weights_as_links)
    with pytest.MonkeyPatch.context() as patch, chdir(place):
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        patch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home / "hub"))
        write_inputs()
        how = {"generate": ("--window-out", "window.safetensors"), "evaluate": ("--cache", "cache")}
        for name, hostile in COMMANDS.items():
            succeeds(hostile.command, *hostile.words(*how.get(name, ()), output=hostile.begun))
        yield home


def weights_as_links(source: str, copy: str) -> None:
    (os.symlink if source.endswith(".safetensors") else shutil.copyfile)(source, copy)


@st.composite
def command_lines(draw: st.DrawFn, hostile: Hostile) -> list[str]:
    """Any options, in any order, with any values."""
    options = [option for option in hostile.command.params if isinstance(option, click.Option)]
    words = []
    for option in draw(st.lists(st.sampled_from(options), max_size=6, unique=True)):
        name = option.opts[0]
        words.append(draw(st.sampled_from([name] * 30 + [name[:-1]])))
        if not option.is_flag and draw(st.integers(0, 40)):
            words.append(draw(values_of(option, WRITTEN)))
    if hostile.command is generate.main:
        words.insert(0, draw(st.sampled_from(["--overwrite", "--resume", "--overwrite"])))
    first = st.sampled_from(PATHS if hostile.command is evaluate.main else PROMPTS)
    argument = draw(st.just(hostile.usual[0]) | first)
    usual = hostile.words(output=draw(st.sampled_from(["new", hostile.begun])))
    return [argument, *usual[1:], *words]


@st.composite
def damaged_files(draw: st.DrawFn, hostile: Hostile) -> list[str]:
    """Damage a file in the current folder; returns a command line that reads it."""
    pattern, options = draw(st.sampled_from(hostile.files))
    files = sorted(path for path in Path().glob(pattern) if path.is_file() and path.stat().st_size)
    path = draw(st.sampled_from(files))
    draw(spoil(path))
    return hostile.words(*(word.format(path) for word in options))


@pytest.mark.parametrize(
    ("cases", "name", "examples"),
    [
        *((command_lines, name, 10) for name in COMMANDS),
        *((damaged_files, name, 14) for name in ("generate", "evaluate")),
        (damaged_files, "tune", 6),
    ],
)
def test_whatever_it_is_given_a_command_ends_well(kept, tmp_path, cases, name, examples):
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # to shrink an example would take minutes
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def ends_well(data: st.DataObject) -> None:
        home = tmp_path / "home"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(kept, home, symlinks=True)
        with chdir(home / "place"):
            words = data.draw(cases(COMMANDS[name]))
            before = contents(home)
            result = invoke(COMMANDS[name].command, *words)
            if result.exit_code != 0:
                assert_refused(result)
            after, place = contents(home), home / "place"
            changed = [name for name in before | after if before.get(name) != after.get(name)]
            named = [place / value for option, value in pairwise(words) if option in WRITTEN]
            outside = [it for it in changed if not any(map((home / it).is_relative_to, named))]
            assert not outside
            if "--resume" in words:
                with suppress(ValueError, OSError):  # read back, as `evaluate` does
                    list(as_batch(Path("run")).images)

    ends_well()
