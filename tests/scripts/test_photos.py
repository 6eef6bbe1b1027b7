"""The photographs demo: what is read of the data set, and its training on made-up pictures."""

import io
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
import torch
import torch.nn.functional as F
from diffusers import StableDiffusionXLPipeline
from PIL import Image
from pyarrow import parquet

from scripts.comparison.__main__ import options_of
from scripts.comparison.taste import Taste
from scripts.demo import photos, train_photos, tune_photos
from scripts.demo.photos import COLOURS, TYPES, WHOSE, read_photos
from scripts.demo.sdxl import Shape
from scripts.demo.tune_photos import Preferred
from tests.conftest import ASSETS
from tests.helpers.commands import assert_refused, invoke, succeeds
from vendi_guidance.features.base import load_features
from vendi_guidance.features.probe import load_probe

KINDS = ("Shirts", "Watches", "Ties")
CLOSE = {"rtol": 1e-3, "atol": 1e-2}


def picture(shade: int, size: tuple[int, int]) -> dict[str, bytes]:
    file = io.BytesIO()
    Image.new("RGB", size, (shade, 0, 0)).save(file, "PNG")
    return {"bytes": file.getvalue()}


def record(number: int, kind: str = "Shirts", colour: str = "Navy Blue", who: str = "Men") -> dict:
    shown = {"id": number, "image": picture(number, (60, 80))}
    return shown | {"articleType": kind, "baseColour": colour, "gender": who}


def save(folder: Path, *records: dict) -> Path:
    folder.mkdir(exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(records), folder / "train-00000.parquet")
    return folder


def test_photographs_with_unknown_types_colours_or_wearers_are_left_out(tmp_path):
    records = [record(1), record(7), record(27, "Watches", "Gold", "Women"), record(5, "Bra")]
    data = save(tmp_path / "data", *records, record(6, colour="Multi"), record(8, who="Dogs"))
    read = read_photos(data)
    names = ([*TYPES], [*COLOURS], [*WHOSE])
    looks = [tuple(own[i] for own, i in zip(names, look, strict=True)) for look in read.looks]
    assert looks == [("shirt", "blue", "men's")] * 2 + [("watch", "yellow", "women's")]
    known, held_out = read.split()
    assert known.numbers.tolist() == [1] and held_out.numbers.tolist() == [7, 27]
    assert held_out.captions[1] == "a photo of a gold women's watch"
    shown = known.images[0]
    assert shown.shape == (3, 80, 80)
    assert shown[:, 40, 40].tolist() == [1, 0, 0] and shown[:, 40, 2].tolist() == [255] * 3


def test_captions_name_the_type_and_half_of_the_time_each_of_the_others(tmp_path):
    read = read_photos(save(tmp_path / "data", record(1), record(2, "Ties", "Red")))
    rows, captions = read.sample(4_000, np.random.default_rng(0))
    for [row], words in zip(rows, captions, strict=True):
        colour, kind = (("navy blue", "shirt"), ("red", "tie"))[row]
        assert not words or words in {
            f"a photo of a {c}{w}{kind}" for c in ("", f"{colour} ") for w in ("", "men's ")
        }
    assert captions.count("") / 4_000 == pytest.approx(0.1, abs=0.02)
    for words in ("navy blue", "men's"):
        of_row = [words in one for one in captions if one and ("shirt" in one or words == "men's")]
        assert np.mean(of_row) == pytest.approx(0.5, abs=0.04)
    drawn = photos.sample_captions(500, np.random.default_rng(0))
    assert not any("women's tie" in one or " men's dress" in one for one in drawn)


def test_a_small_model_and_its_probe_are_trained_on_made_up_pictures(tmp_path, monkeypatch):
    small = Shape(size=80, widths=(8, 8, 8), heads=(1, 1, 1), texts=(32, 32), groups=4)
    monkeypatch.setattr(train_photos, "SHAPE", small)
    monkeypatch.setattr(train_photos, "VAE_WIDTHS", (4, 4, 4))
    monkeypatch.setattr(train_photos, "REFERENCES", 6)
    data = save(tmp_path / "data", *(record(i, KINDS[i % 3]) for i in range(1, 49)))
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "photos.txt").write_text("a photo of a shirt\na photo of a tie")
    options = [f"--data={data}", f"--assets={tmp_path}", f"--work={tmp_path / 'work'}"]
    options += ["--vae-steps=1", "--steps=2", "--probe-steps=1", "--batch-size=2", "--device=cpu"]
    model = tmp_path / "demo-photos"
    printed = succeeds(train_photos.main, *options).output

    pipe = StableDiffusionXLPipeline.from_pretrained(model)
    assert pipe.scheduler.config.prediction_type == "epsilon"
    assert not pipe.scheduler.config.rescale_betas_zero_snr
    [image] = pipe("a photo of a tie", num_inference_steps=2).images
    assert image.size == (80, 80)
    probe = load_probe(tmp_path / "demo-photos-probe")
    assert probe.size == 80 and len(probe.looks([image])[0]) == 3
    features = load_features(tmp_path / "demo-photos-probe/training_features.safetensors")
    assert features.shape == (6, 128)
    assert "demo-photos-probe: colour is right in " in printed

    before = (model / "unet" / "diffusion_pytorch_model.safetensors").read_bytes()
    succeeds(train_photos.main, *options, "--only-probe")
    assert (model / "unet" / "diffusion_pytorch_model.safetensors").read_bytes() == before


def test_a_model_is_tuned_on_what_the_probe_sees_as_its_type(
    tmp_path, tiny_sdxl_folder, monkeypatch
):
    def probe(pixels):
        numbers = ((pixels[:, 0, 40, 40] + 1) * 127.5).round().long()
        kinds = torch.tensor([[*TYPES.values()].index(kind) for kind in KINDS])[numbers % 3]
        kinds[numbers > 10] = [*TYPES].index("dress")
        blue = torch.full_like(kinds, [*COLOURS].index("blue"))
        return [F.one_hot(it, 40).float() for it in (kinds, blue)]

    data = save(tmp_path / "data", *(record(i, KINDS[i % 3]) for i in range(1, 31)))
    (tmp_path / "demo-photos").symlink_to(tiny_sdxl_folder)
    (tmp_path / "prompts").mkdir()
    for name in ("photos", "photos-tuning"):
        (tmp_path / "prompts" / f"{name}.txt").write_text(f"a photo of a {name}")
    drawn = Mock(wraps=Preferred.sample)
    monkeypatch.setattr(Preferred, "sample", lambda *given: drawn(*given))
    monkeypatch.setattr(tune_photos, "reconstruct", lambda vae, images, *_: images)
    for name, value in {"load_probe": lambda folder: probe, "RANK": 2, "BATCH": 2}.items():
        monkeypatch.setattr(tune_photos, name, value)
    options = [f"--data={data}", f"--assets={tmp_path}", f"--work={tmp_path / 'work'}"]
    options += ["--steps=2", "--batch-size=3", "--device=cpu"]
    succeeds(tune_photos.main, *options, "--dtype=float32", "--beta=2")

    liked = drawn.call_args.args[0]
    assert sorted(liked.photos.numbers.tolist()) == [1, 2, 3, 4, 5, 6, 8, 9, 10]  # 7 is held out
    output = tmp_path / tune_photos.NAME
    taste = Taste.load(output)
    tastes = taste.of(tune_photos.embed(liked.photos.images))
    torch.testing.assert_close(torch.from_numpy(liked.weights).log() * 2, tastes.double(), **CLOSE)
    assert taste.base.keys() == {"a photo of a photos", "a photo of a photos-tuning"}
    pipe = StableDiffusionXLPipeline.from_pretrained(tiny_sdxl_folder)
    pipe.load_lora_weights(output)
    weights = [it for name, it in pipe.unet.named_parameters() if "lora_B" in name]
    assert any(weight.any() for weight in weights)


def test_what_is_liked_is_drawn_more_often_among_what_the_caption_fits(tmp_path):
    records = [record(1), record(2), record(3, colour="Red"), record(4, "Ties", "Red")]
    liked = Preferred(read_photos(save(tmp_path / "data", *records)), np.array([1, 3, 4, 0.1]))
    rows, captions = liked.sample(8_000, np.random.default_rng(0))
    drawn = Counter(zip(captions, rows, strict=True))
    for words, weights in (("shirt", [1, 3, 4]), ("navy blue men's shirt", [1, 3, 0])):
        counts = np.array([drawn[f"a photo of a {words}", row] for row in range(3)])
        assert counts / counts.sum() == pytest.approx(np.divide(weights, sum(weights)), abs=0.05)
    assert len({*captions}) == 1 + 3 * 2 + 2 * 2  # colours and wearers, named or not
    assert captions.count("") / 8_000 == pytest.approx(0.1, abs=0.02)
    assert (rows == 3).mean() == pytest.approx(0.5, abs=0.02)  # types are drawn equally often


def test_the_tuned_model_draws_the_same_merged_and_its_student_is_a_lora_of_that(tmp_path):
    def drawn(pipe, scale=5.0):
        words = {"num_inference_steps": 4, "guidance_scale": scale, "output_type": "np"}
        return pipe(
            "a photo of a watch", generator=torch.Generator().manual_seed(0), **words
        ).images

    pipe = StableDiffusionXLPipeline.from_pretrained(ASSETS / "demo-photos")
    plain = drawn(pipe)
    pipe.load_lora_weights(ASSETS / tune_photos.NAME)
    tuned = drawn(pipe)
    assert np.abs(tuned - plain).mean() > 0.01
    options = options_of("demo-photos-tuned-turbo-lora", "cpu", tmp_path)
    merged = StableDiffusionXLPipeline.from_pretrained(options.model)
    np.testing.assert_allclose(drawn(merged), tuned, atol=2 / 255)
    before = drawn(merged, 1)
    merged.load_lora_weights(options.lora)
    assert np.abs(drawn(merged, 1) - before).mean() > 0.01


@pytest.mark.parametrize("lost", ["files", "column", "all"])
def test_data_that_cannot_be_read_is_an_error_with_the_remedy(tmp_path, lost):
    data = tmp_path / "data"
    one = record(1, "Bra") if lost == "all" else record(1)
    if lost == "column":
        del one["gender"]
    if lost != "files":
        save(data, one)
    words = {"files": "hf download", "column": "no column gender", "all": "known type"}
    result = invoke(train_photos.main, f"--data={data}", f"--work={tmp_path}", "--device=cpu")
    assert_refused(result, words[lost])
