"""Generating for sessions, on a tiny model."""

import re
from zipfile import ZipFile

import pytest
import torch
from click.testing import CliRunner

from tests.helpers.app_at_hand import request_of, scorer_of, studio_of
from tests.helpers.runs import read_run
from vendi_guidance.app.actions import memory_text, read_window
from vendi_guidance.app.scoring import table_of
from vendi_guidance.app.session import COPIES, Session
from vendi_guidance.commands.generate import main as generate
from vendi_guidance.guidance.window import WINDOW, SlidingWindow


@pytest.fixture(scope="module")
def studio(tiny_sdxl_folder):
    return studio_of(tiny_sdxl_folder)


@pytest.fixture
def session(tmp_path):
    folder = tmp_path / "session"
    folder.mkdir()
    return Session(folder)


def finish(studio, session, request, on_progress=lambda share, what: None):
    """All of a generation; returns how many images of each kind there were after each batch."""
    return [
        tuple(arm.done for arm in generation.arms.values())
        for generation in studio.generate(session, request, on_progress)
    ]


def pixels(arm):
    return [image.tobytes() for image in read_run(arm.folder).images]


def test_both_kinds_appear_batch_by_batch(studio, session):
    told = []
    request = request_of("cat\ndog", images=3, batch_size=2)
    found = finish(studio, session, request, lambda share, what: told.append((share, what)))
    assert found == [(2, 0), (2, 2), (4, 2), (4, 4), (6, 4), (6, 6)]
    shares = [share for share, _ in told]
    assert shares == sorted(shares) and shares[-1] == 1 and len(shares) == 6 * request.steps
    assert told[0][1] == "without guidance, step 1 of 2"
    assert told[-1][1] == "with guidance, step 2 of 2"


def test_images_are_those_of_generate(studio, session, tiny_sdxl_folder, tmp_path):
    finish(studio, session, request_of("cat", images=3, seed=5))
    for strength, arm in zip((0, 0.5), session.generation.arms.values(), strict=True):
        folder = tmp_path / str(strength)
        words = ["cat", "--model", tiny_sdxl_folder, "--images-per-prompt", 3, "--seed", 5]
        words += ["--steps", 2, "--batch-size", 2, "--diversity", strength, "--output", folder]
        words += ["--guidance-scale", 5, "--device", "cpu", "--dtype", "float32"]
        assert CliRunner().invoke(generate, list(map(str, words))).exit_code == 0
        assert [image.tobytes() for image in read_run(folder).images] == pixels(arm)


def test_the_memory_goes_on_from_generation_to_generation(studio, session):
    found, remembered = [], []
    for forget in (False, False, True):
        if forget:
            session.forget()
        finish(studio, session, request_of("cat"))
        found.append([pixels(arm) for arm in session.generation.arms.values()])
        remembered.append(len(session.window))
    assert remembered == [2, 4, 2]
    (plain, first), (plain_again, later), (_, forgotten) = found
    assert plain_again == plain and later != first == forgotten


def test_sessions_share_no_memory(studio, session, tmp_path):
    other = Session(tmp_path / "other")
    other.folder.mkdir()
    finish(studio, session, request_of("cat"))
    for _ in studio.generate(other, request_of("cat"), lambda share, what: None):
        finish(studio, session, request_of("dog"))  # in turn, with the same model
    assert pixels(other.generation.arms["with"]) != []
    assert (len(session.window), len(other.window)) == (2 + 2 * 2, 2)
    assert other.generation.folder.is_dir()


def test_a_stop_ends_it_within_a_batch_and_keeps_whole_batches(studio, session):
    def stop_in_the_third_batch(share, what):
        if share > 0.5:
            session.stop.set()

    found = finish(studio, session, request_of("cat\ndog"), stop_in_the_third_batch)
    assert found == [(2, 0), (2, 2)]
    assert not session.is_busy
    assert len(session.window) == 2
    for arm in session.generation.arms.values():
        assert len(read_run(arm.folder).images) == len(list(arm.folder.glob("*.png"))) == 2


def test_a_generation_that_is_abandoned_lets_go_of_the_session(studio, session):
    generation = studio.generate(session, request_of("cat\ndog"), lambda share, what: None)
    next(generation)
    assert session.is_busy
    with pytest.raises(ValueError, match="being generated: wait"):
        finish(studio, session, request_of("cat"))
    generation.close()
    assert not session.is_busy
    assert finish(studio, session, request_of("cat")) == [(2, 0), (2, 2)]


@pytest.mark.parametrize("arm", ["without", "with"])
def test_not_like_this_remembers_the_image_more_often(studio, session, arm):
    finish(studio, session, request_of("cat\ndog"))
    session.choose(arm, 3)
    assert session.selected == f"“dog”, seed 3, {arm} guidance"
    features, prompt = session.generation.arms[arm].sample(3)
    before = len(session.window)
    session.not_like_it()
    assert len(session.window) == before + COPIES
    assert torch.allclose(session.window.features[-1], features.flatten())
    assert torch.allclose(session.window.prompts[-1], prompt)
    finish(studio, session, request_of("dog"))
    assert len(session.window) == before + COPIES + 2
    assert "Marked to avoid: 1" in memory_text(session)
    session.remember(SlidingWindow(2))
    assert "No images are remembered, of 2 at most.<" in memory_text(session)


def test_more_like_this_changes_what_is_generated_and_is_said_in_its_metadata(studio, session):
    finish(studio, session, request_of("cat"))
    first = pixels(session.generation.arms["with"])
    session.choose("without", 1)
    session.more_like_it()
    session.window.clear()
    finish(studio, session, request_of("cat"))
    assert pixels(session.generation.arms["with"]) != first
    row = read_run(session.generation.arms["with"].folder).rows[0]
    assert (row["diversity_exemplars"], row["diversity_beta"]) == (1, 1.0)


def test_an_image_must_be_selected_and_there(studio, session):
    with pytest.raises(ValueError, match="Select an image first"):
        session.not_like_it()
    finish(studio, session, request_of("cat"))
    for number in (2, -1, True, [], None):
        with pytest.raises(ValueError, match="no such image"):
            session.choose("with", number)
    session.choose("with", 0)
    with pytest.raises(ValueError, match="The image has left the memory: generate again"):
        for _ in range(WINDOW):
            session.not_like_it()
    session.new_folder()
    with pytest.raises(ValueError, match="Select an image first"):
        session.more_like_it()


def test_what_a_model_cannot_read_of_a_prompt_is_known(studio):
    assert studio.truncated("x" * 30 + "dog") == (30, "dog")  # 32 tokens, with those of its ends
    assert studio.truncated("x" * 30) == (30, "")


def test_scores_and_report_of_a_generation(studio, session, tiny_probe_folder, tmp_path):
    finish(studio, session, request_of("cat\n<b>x</b>", images=4))
    scorer = scorer_of(studio, tiny_probe_folder)
    session.generation.comparison = scorer.compare(session.generation)
    table = table_of(session.generation.comparison)
    for title in ("Conditional-Vendi", "looks", "named kept"):
        assert title in table
    assert "<b>x" not in table
    with ZipFile(session.generation.pack()) as packed:
        packed.extractall(tmp_path / "taken")
    for name, arm in session.generation.arms.items():
        run = read_run(tmp_path / "taken" / name)
        assert run.prompts == ["cat"] * 4 + ["<b>x</b>"] * 4
        assert [image.tobytes() for image in run.images] == pixels(arm)
    page = (tmp_path / "taken" / "report" / "report.html").read_text()
    assert "&lt;b&gt;x&lt;/b&gt;" in page and "<b>x" not in page


def test_a_memory_of_another_text_encoder_is_refused_at_load_as_it_is_when_generating(
    studio, session, tmp_path
):
    finish(studio, session, request_of("cat"))
    window = SlidingWindow(2)
    window.append(torch.randn(1, *session.window.latent_shape), torch.randn(1, 5))
    window.save(tmp_path / "memory.safetensors")
    session.remember(window)
    with pytest.raises(ValueError, match="width 5, got 16: clear it") as caught:
        finish(studio, session, request_of("cat"))
    with pytest.raises(ValueError, match=re.escape(f"Not loaded: {caught.value}.")):
        read_window(str(tmp_path / "memory.safetensors"), studio)


def test_a_memory_of_images_of_another_shape_is_no_obstacle(studio, session):
    session.window.append(torch.randn(1, 4, 5, 5), torch.randn(1, 16))
    assert finish(studio, session, request_of("cat")) == [(2, 0), (2, 2)]
