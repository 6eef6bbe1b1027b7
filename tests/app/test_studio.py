"""Generating for sessions, on a tiny model."""

from zipfile import ZipFile

import pytest
import torch
from click.testing import CliRunner

from tests.helpers.app_at_hand import request_of, studio_of
from tests.helpers.runs import read_run
from vendi_guidance.app.actions import read_window, scores_text
from vendi_guidance.app.studio import LONGEST_PROMPT, MOST_PROMPTS, Session
from vendi_guidance.commands.generate import main as generate


@pytest.fixture(scope="module")
def studio(tiny_sdxl_folder, tiny_probe_folder):
    return studio_of(tiny_sdxl_folder, tiny_probe_folder)


@pytest.fixture
def session(tmp_path):
    return Session(tmp_path)


def finish(studio, session, request, on_progress=lambda share, what: None):
    """All of a generation; returns how many images of each kind there were after each batch."""
    return [
        (len(generation.images("without")), len(generation.images("with")))
        for generation in studio.generate(session, request, on_progress)
    ]


def pixels(session, arm):
    run = read_run(session.generation.folder / arm)
    return [image.tobytes() for image in run.images]


@pytest.mark.parametrize(
    ("text", "given", "why"),
    [
        *((text, {}, "Write 1 to 8 prompts") for text in (None, " \n\t\n")),
        ("x" * (LONGEST_PROMPT + 1), {}, "at most 500 characters"),
        ("\n".join(map(str, range(MOST_PROMPTS + 1))), {}, "Write 1 to 8 prompts"),
        ("a cat\n\ud800", {}, r"A prompt has '\\ud800', half of a surrogate pair"),
        *(("cat", {name: None}, "A number is missing") for name in ("images", "diversity", "seed")),
    ],
)
def test_each_line_is_a_prompt_and_requests_that_cannot_be_met_are_refused(text, given, why):
    assert request_of("  a cat \n\n<b>\r\na cat\n").prompts == ["a cat", "<b>"]
    with pytest.raises(ValueError, match=why):
        request_of(text, **given)


def test_both_kinds_appear_batch_by_batch(studio, session):
    told = []
    request = request_of("cat\ndog", images=3)
    found = finish(studio, session, request, lambda share, what: told.append((share, what)))
    assert found == [(2, 0), (2, 2), (4, 2), (4, 4), (6, 4), (6, 6)]
    shares = [share for share, _ in told]
    assert shares == sorted(shares) and shares[-1] == 1 and len(shares) == 6 * 2
    assert told[0][1] == "without guidance, step 1 of 2"
    assert told[-1][1] == "with guidance, step 2 of 2"


def test_images_are_those_of_generate(studio, session, tiny_sdxl_folder, tmp_path):
    finish(studio, session, request_of("cat", images=3, seed=5))
    for diversity, arm in ((0, "without"), (0.5, "with")):
        words = ["cat", "--model", tiny_sdxl_folder, "--images-per-prompt", 3, "--seed", 5]
        words += ["--steps", 2, "--batch-size", 2, "--diversity", diversity, "--device", "cpu"]
        words += ["--dtype", "float32", "--output", tmp_path / "out" / arm]
        assert CliRunner().invoke(generate, list(map(str, words))).exit_code == 0
        found = [image.tobytes() for image in read_run(tmp_path / "out" / arm).images]
        assert found == pixels(session, arm)


def test_the_memory_goes_on_from_generation_to_generation(studio, session, tmp_path):
    found = []
    for _ in range(2):
        finish(studio, session, request_of("cat"))
        found.append((pixels(session, "without"), pixels(session, "with"), len(session.window)))
    (plain, first, two), (plain_again, later, four) = found
    assert plain_again == plain and later != first and (two, four) == (2, 4)
    (tmp_path / "other").mkdir()
    other = Session(tmp_path / "other")
    for _ in studio.generate(other, request_of("cat"), lambda share, what: None):
        finish(studio, session, request_of("dog"))  # in turn, with the same model
    assert pixels(other, "with") == first and len(other.window) == 2


def test_a_stop_ends_it_within_a_batch_and_keeps_whole_batches(studio, session):
    def stop_in_the_third_batch(share, what):
        if share > 0.5:
            session.stop.set()

    assert finish(studio, session, request_of(), stop_in_the_third_batch) == [(2, 0), (2, 2)]
    assert not session.stop.is_set() and len(session.window) == 2
    for arm in ("without", "with"):
        files = list((session.generation.folder / arm).glob("*.png"))
        assert len(pixels(session, arm)) == len(files) == 2


def test_scores_and_files_of_a_generation(studio, session, tmp_path):
    with pytest.raises(ValueError, match="There are no images yet"):
        session.pack()
    finish(studio, session, request_of("cat\n<b>x</b>", images=4))
    comparison = session.generation.comparison = studio.compare(session.generation)
    table = scores_text(comparison)
    for title in ("Conditional-Vendi", "looks per prompt", "prompt fidelity"):
        assert title in table
    assert "<b>x" not in table
    with ZipFile(session.pack()) as packed:
        packed.extractall(tmp_path / "taken")
    for arm in ("without", "with"):
        run = read_run(tmp_path / "taken" / arm)
        assert [row["prompt"] for row in run.rows] == ["cat"] * 4 + ["<b>x</b>"] * 4
        assert [image.tobytes() for image in run.images] == pixels(session, arm)
    page = (tmp_path / "taken" / "report" / "report.html").read_text()
    assert "&lt;b&gt;x&lt;/b&gt;" in page and "<b>x" not in page
    assert (tmp_path / "taken" / "memory.safetensors").is_file()


def test_a_memory_of_another_size_is_taken_but_not_of_another_encoder(studio, session, tmp_path):
    session.window.append(torch.randn(1, 4, 5, 5), torch.randn(1, 16))
    assert finish(studio, session, request_of("cat")) == [(2, 0), (2, 2)]
    shape = session.window.latent_shape
    session.window.clear()
    session.window.append(torch.randn(1, *shape), torch.randn(1, 5))
    session.window.save(tmp_path / "memory.safetensors")
    with pytest.raises(ValueError, match="width 5, got 16: clear it"):
        finish(studio, session, request_of("cat"))
    with pytest.raises(ValueError, match="Not loaded: it is of another text encoder, of width 5"):
        read_window(str(tmp_path / "memory.safetensors"), studio.width)
