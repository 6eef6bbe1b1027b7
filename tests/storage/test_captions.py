"""Captions of image folders in the usual layouts, and in the headers of images."""

import json
import os
from html import escape
from unittest.mock import Mock

import pytest
from PIL import Image

from tests.helpers.batches_at_hand import save_tar
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.storage.captions import find_captions
from vendi_guidance.storage.embedded import embedded_prompt
from vendi_guidance.storage.imagefolder import save_image
from vendi_guidance.storage.images import list_files

NAMES = ("0.png", "1.png", "more/2.JPG")


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (2, 2)).save(tmp_path / name)
    return tmp_path


def captions_of(folder):
    found = find_captions(folder, list_files(folder)[0])
    return found.source, {str(file.relative_to(folder)): text for file, text in found.of.items()}


@pytest.mark.parametrize(
    ("name", "header", "lines", "captions"),
    [
        (
            *("metadata.csv", "file_name,text"),
            ["0.png,a cat", '1.png,"a dog, asleep"', "more/2.JPG,a cat"],
            {"0.png": "a cat", "1.png": "a dog, asleep", "more/2.JPG": "a cat"},
        ),
        (
            *("captions.csv", "\ufeffimage,n,caption"),
            ["0.png,1,a cat", "0.png,2,another", "1.png,3,", "9.png,4,a cow", "more/0.png,5,a hen"],
            {"0.png": "a cat"},
        ),
        (
            *("metadata.csv", "\ufeffFile_Name;Captions"),
            ["0.png;a cat, asleep", '1.png;"a\ndog"', '.\\more\\2.JPG;["a big cat", "a cat"]'],
            {"0.png": "a cat, asleep", "1.png": "a\ndog", "more/2.JPG": "a big cat"},
        ),
        (
            *("metadata.csv", "PATH\tn\tText "),
            [f"0.png\t{'1' * 200_000}\t[photo] a cat", '1.png\t2\ta "dog"'],
            {"0.png": "[photo] a cat", "1.png": 'a "dog"'},
        ),
    ],
)
def test_a_table_names_files_and_captions_of_all_or_some(folder, name, header, lines, captions):
    for encoding in ("utf-8", "utf-16"):  # as Excel saves "Unicode text"
        text = "\n".join([header, *lines])
        (folder / name).write_text(text.lstrip("\ufeff") if "16" in encoding else text, encoding)
        assert captions_of(folder) == (name, captions)


def test_the_first_line_of_a_text_beside_an_image_is_its_caption(folder):
    (folder / "metadata.csv").write_text("prompt\na cat\n")  # without columns of captions
    (folder / "0.txt").write_text("\n a cat \nSteps: 20, Seed: 1\n")
    assert not find_captions(folder, list_files(folder)[0]).of  # one of three may be unrelated
    (folder / "more" / "2.txt").write_bytes(b"caf\xe9")
    (folder / "1.txt").write_text("a café", "utf-16")
    found = {"0.png": "a cat", "1.png": "a café", "more/2.JPG": "caf\ufffd"}
    assert captions_of(folder)[1] == found


def test_texts_beside_images_are_read_from_tar_files_too(folder):
    texts = {"a.jpg": b"", "a.txt": b"a cat", "b.png": b"", "b.json": b'{"caption": "a dog"}'}
    for name in NAMES:
        (folder / name).unlink()
    save_tar(folder / "0.tar", texts | {"c.png": b"", "c.json": b"[" * 9999, "c.txt": b" "})
    said, captions = captions_of(folder)
    assert said == "the .txt or .json file beside each image"
    assert captions == {"0.tar/a.jpg": "a cat", "0.tar/b.png": "a dog"}
    save_tar(folder / "0.tar", {"a.png": b""})
    assert not find_captions(folder, list_files(folder)[0]).of


def test_tables_in_subfolders_are_all_read_relative_to_their_own(folder):
    for name in ("0.png", "1.png"):
        (folder / "train/a").mkdir(parents=True, exist_ok=True)
        (folder / name).rename(folder / "train/a" / name)
    (folder / "train/metadata.csv").write_text("file_name,text\na/0.png,a cat\n2.png,a cow\n")
    rows = '{"file_name": "2.JPG", "text": ["a dog", "a hound"]}\n{"file_name": "0.png"}\n{"file'
    (folder / "more/metadata.jsonl").write_text(rows)
    captions = {"train/a/0.png": "a cat", "more/2.JPG": "a dog"}
    assert captions_of(folder) == ("all of more/metadata.jsonl, train/metadata.csv", captions)
    lost = "images not here: 2 (more/0.png, train/2.png)"
    assert find_captions(folder, list_files(folder)[0]).lost == lost


def test_folders_of_splits_are_no_prompts_and_numbers_of_repeats_are_no_part_of_one(folder):
    for kind, name in (("train/10_a_cat", "0.png"), ("train/2_dogs", "1.png")):
        (folder / kind).mkdir(parents=True)
        (folder / name).rename(folder / kind / name)
    source, found = captions_of(folder)
    assert [*found.values()] == ["more", "a cat", "dogs"] and source.endswith("of repeats")
    (folder / "train/10_a_cat").rename(folder / "a_cat")
    (folder / "train/2_dogs").rename(folder / "a_dog")
    found = {"a_cat/0.png": "a cat", "a_dog/1.png": "a dog", "more/2.JPG": "more"}
    assert captions_of(folder) == ("the names of subfolders", found)
    (folder / "more").rename(folder / "test")
    assert not find_captions(folder, list_files(folder)[0]).of


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"id,score\n1,2\n", "has the columns id, score: name the column of files 'file_name'"),
        (b"file,caption\n7.png,a\n", "no caption of an image .* starts with '7.png', .* is 0.png"),
        (b"file,caption\n0.png,\n", "no caption of an image .* starts with nothing"),
        (b"file,caption\n../0.png,a\n", "line 2 names '../0.png', which is not in"),
        (b"file,caption\n/0.png,a\n", "line 2 names '/0.png', which is not in"),
        (b'file,caption\n0.png,"[""a"", ""b"""\n1.png,[3]', r"line 3 has '\[3\]' for a text"),
        (b"file,caption\n0.png,caf\xe9\n", "is not UTF-8"),
        (b'file,caption\n0.png,"a" b\n', "line 2 is not CSV"),
        (b"", r"has the columns \(none\)"),
    ],
)
def test_unusable_captions_are_refused(folder, content, words):
    (folder / "captions.csv").write_bytes(content)
    with pytest.raises(ValueError, match=rf"captions.csv.*{words}"):
        find_captions(folder, list_files(folder)[0])


def test_hidden_files_and_figures_of_reports_are_not_listed(folder):
    for name in ("._0.png", ".thumbs/0.png", "report/spectrum.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"")
    assert len(list_files(folder)[0]) == 4
    for name in ("report.html", "report.json"):
        (folder / "report" / name).write_text("")
    assert [str(file.relative_to(folder)) for file in list_files(folder)[0]] == list(NAMES)


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
JOINED = {  # texts that are joined, encoded, joined again, and pass a node without names
    "1": node("KSampler", positive=["2", 0]),
    "2": node("ConditioningConcat", conditioning_to=["3", 0], conditioning_from=["4", 0]),
    "3": node("CLIPTextEncode", text=["5", 0]),
    "4": node("CLIPTextEncode", text="in a field", clip=["9", 0]),
    "5": node("StringConcatenate", string_a=["6", 0], string_b="cat", delimiter=" "),
    "6": node("Reroute", **{"": ["7", 0], "model": ["8", 0]}),
    "7": node("Text Multiline", text="a"),
    "8": node("LoraTagLoader", text="<lora:x>"),
}
WORKFLOW = {  # as ComfyUI's own files: links by number, widgets without names
    "links": [
        [5, 1, 0, 3, 1, "CONDITIONING"],
        [6, 2, 0, 3, 2, "CONDITIONING"],
        [7, 4, 0, 1, 1, ""],
    ],
    "nodes": [
        {
            "id": 3,
            "type": "KSampler",
            "widgets_values": [1, "fixed"],
            "inputs": [{"name": "positive", "link": 5}, {"name": "negative", "link": 6}],
        },
        {"id": 1, "type": "CLIPTextEncode", "inputs": [{"name": "text", "link": 7}]},
        {"id": 2, "type": "CLIPTextEncode", "widgets_values": ["blurry"]},
        {"id": 4, "type": "PrimitiveNode", "widgets_values": ["a cat", "fixed"]},
    ],
}
STYLED = 'a cat, best\nNegative prompt: bad\nSteps: 30, Seed: 1, Raw prompt: "a cat, asleep", '
STYLED += "Raw negative prompt: , Version: Fooocus v2.5"
SD_METADATA = {"model": "stable diffusion", "image": {"prompt": [{"prompt": "a cat [dog]"}]}}
NOVELAI = {"steps": 28, "seed": 5, "uc": "bad"}
V4 = NOVELAI | {"v4_prompt": {"caption": {"base_caption": "a cat"}}}
A1111 = "Automatic1111 or Forge"


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ({"parameters": PARAMETERS}, (A1111, "a cat,\nasleep")),
        ({"parameters": "a cat\nSize: 8x8, Seed: 1, Steps: 20"}, (A1111, "a cat")),
        ({"parameters": STYLED}, ("Fooocus", "a cat, asleep")),
        ({"parameters": {"prompt": "a cat", "seed": "1"}}, ("Fooocus or Easy Diffusion", "a cat")),
        (
            {"parameters": {"sui_image_params": {"prompt": "a cat", "seed": 1}}},
            ("SwarmUI", "a cat"),
        ),
        ({"prompt": GRAPH, "workflow": "{}"}, ("ComfyUI", "a cat")),
        ({"prompt": FLUX}, ("ComfyUI", "a dog")),
        ({"prompt": JOINED}, ("ComfyUI", "a cat, in a field")),
        ({"prompt": "[]", "workflow": WORKFLOW}, ("ComfyUI", "a cat")),
        ({"prompt": " a cat\n", "seed": 1, "versions": {}}, ("vendi-guidance", "a cat")),
        ({"prompt": "a cat", "seed": 1, "negative_prompt": ""}, ("Easy Diffusion", "a cat")),
        ({"invokeai_metadata": {"positive_prompt": "a cat", "seed": 1}}, ("InvokeAI", "a cat")),
        ({"sd-metadata": SD_METADATA, "Dream": "x"}, ("InvokeAI", "a cat")),
        ({"Dream": '"a cat [dog]" -s 50 -S 123 -W 512'}, ("InvokeAI", "a cat")),
        ({"Comment": NOVELAI | {"prompt": "a cat"}}, ("NovelAI", "a cat")),
        ({"Comment": V4, "Description": "x"}, ("NovelAI", "a cat")),
        ({"Description": "a cat", "Software": "NovelAI"}, ("NovelAI", "a cat")),
        *(
            ({"parameters": text}, None)
            for text in (
                "Steps: 20, Sampler: Euler",
                "a cat",
                "a cat, seed: 5\nSteps: 20",
                {},
                "[1]",
            )
        ),
        *(({"prompt": text}, None) for text in (LOOP, "[" * 9999, "[1]", "a cat", "")),
        *(({"invokeai_metadata": text}, None) for text in ({}, {"positive_prompt": " "}, "x")),
        ({"Comment": "Created with GIMP", "Description": "a cat"}, None),
    ],
)
def test_the_prompt_is_found_in_the_text_chunks_of_a_png(tmp_path, texts, found):
    save_image(tmp_path / "a.png", Image.new("RGB", (2, 2)), texts)
    said = embedded_prompt(tmp_path / "a.png")
    assert (said[:2] if said and said.prompt else None) == found
    is_empty = not texts.get("prompt", "x")
    assert said is None if is_empty else bool(said.unread) == (found is None)


@pytest.mark.parametrize(
    ("tag", "text", "found"),
    [
        (0x9286, b"UNICODE\0" + PARAMETERS.encode("utf-16-be"), (A1111, "a cat,\nasleep")),
        (0x9286, b"UNICODE\0" + PARAMETERS.encode("utf-16-le"), (A1111, "a cat,\nasleep")),
        (0x9286, b"ASCII\0\0\0" + json.dumps({"c": "a cat"}).encode(), ("Draw Things", "a cat")),
        (0x010E, PARAMETERS, (A1111, "a cat,\nasleep")),
        (0x0110, "prompt:" + json.dumps(GRAPH), ("ComfyUI", "a cat")),
        (0x010F, "Workflow:" + json.dumps(WORKFLOW), ("ComfyUI", "a cat")),
        (None, json.dumps({"c": 'a "cat" & more', "seed": 1}), ("Draw Things", 'a "cat" & more')),
    ],
)
def test_the_prompt_is_found_in_exif_and_xmp(tmp_path, tag, text, found):
    exif = Image.Exif()
    (exif.get_ifd(0x8769) if tag == 0x9286 else exif)[tag or 0x0112] = text if tag else 1
    xmp = f"<exif:UserComment><rdf:Alt><rdf:li lang='x'>{escape(text)}</rdf:li>" if not tag else ""
    for suffix in ("jpg", "webp"):
        Image.new("RGB", (2, 2)).save(tmp_path / f"a.{suffix}", exif=exif, xmp=xmp.encode())
        assert embedded_prompt(tmp_path / f"a.{suffix}")[:2] == found


def test_texts_of_no_known_form_leave_the_names_of_folders_and_are_said_to(folder):
    for name in NAMES:
        (folder / "cats").mkdir(exist_ok=True)
        (folder / name).unlink()
        texts = {"parameters": PARAMETERS if name == "0.png" else "a dog"}
        save_image(folder / "cats" / f"{name[-5]}.png", Image.new("RGB", (2, 2)), texts)
    found = find_captions(folder, list_files(folder)[0])
    assert {*found.of.values()} == {"cats"} and found.source == "the names of subfolders"
    said = "only 1 image with one in the metadata that Automatic1111 or Forge wrote into the images"
    assert found.lost == f"{said}; texts of no known form in 2 images (parameters)"
    for file in (folder / "cats").iterdir():
        file.rename(folder / file.name)
    note = as_batch(folder).note
    assert note.startswith("No prompts found in") and note.endswith(f"subfolders; {found.lost}.")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PARAMETERS, "a cat,\nasleep"),
        ('{"sui_image_params": {"prompt": "a cat"}}', "a cat"),
        ("Steps: 20, Seed: 1", None),
        ('{\n"seed": 1}', None),
    ],
)
def test_a_text_beside_an_image_is_read_in_the_same_forms(folder, text, found):
    for name in NAMES:
        (folder / name).with_suffix(".txt").write_text(text)
    captions = find_captions(folder, list_files(folder)[0])
    assert {*captions.of.values()} == ({found} if found else set())


def test_a_named_pipe_is_not_opened_which_would_wait_forever(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "a.png")
    monkeypatch.setattr(Image, "open", Mock(side_effect=pytest.fail.Exception))
    assert not find_captions(tmp_path, [tmp_path / "a.png"]).of


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
