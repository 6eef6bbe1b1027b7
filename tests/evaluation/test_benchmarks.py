"""Benchmarks, judges that answer questions, and the numbers of papers."""

import csv
import json
from math import log
from unittest.mock import Mock

import jsonschema
import pytest
import torch
from torch.nn.functional import one_hot

from tests.conftest import ASSETS
from tests.helpers.batches_at_hand import greys, save_batch, save_tar
from tests.helpers.commands import Killed, assert_refused, invoke, said_by, succeeds
from vendi_guidance.commands import benchmark, evaluate as command, generate
from vendi_guidance.evaluation import answers
from vendi_guidance.evaluation.answers import Answers, Questions
from vendi_guidance.evaluation.attributes import Attribute, attributes_in, open_benchmark
from vendi_guidance.evaluation.confusion import reliability
from vendi_guidance.evaluation.embedding import Embedding
from vendi_guidance.evaluation.evaluator import evaluate
from vendi_guidance.evaluation.judges import Judges
from vendi_guidance.evaluation.spread import attribute_scores, binomial_test
from vendi_guidance.features.probe import load_probe
from vendi_guidance.storage.prompt_files import open_prompts

COLOUR = Attribute("colour", ("red", "blue", "green"))
WORDS = ("--image-embedder", "pixels:2", "--prompt-embedder", "words")
# what a person saw in eight images of each of five prompts
BY_HAND = {
    "a car": ["red"] * 4 + ["blue"] * 4,
    "a bus": ["Red"] * 8,
    "a red car": ["red"] * 6 + ["blue"] * 2,
    "a blue car": ["blue"] * 8,
    "a night": ["none of these"] * 8,
}


def table(path, rows, columns=("file", "attribute", "value", "confidence")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


@pytest.fixture
def cars(tmp_path):
    """40 images with the prompts of `BY_HAND`, and the table of what a person saw."""
    seen = [(prompt, value) for prompt, values in BY_HAND.items() for value in values]
    rows = [{"prompt": prompt} for prompt, _ in seen]
    folder = save_batch(tmp_path / "cars", greys(*range(0, 240, 6)), rows)
    given = [(f"{i}.png", "colour", value, "") for i, (_, value) in enumerate(seen)]
    return folder, table(tmp_path / "seen.csv", given)


def test_the_papers_numbers_of_forty_answers_are_those_computed_by_hand(cars):
    folder, seen = cars
    judges = Judges(attributes=[COLOUR], attribute_judge=Answers.read(seen))
    report = evaluate(folder, embedding=Embedding("pixels:2", "words"), judges=judges)
    [found] = report.attributes
    of_car = log(2) / log(3)
    grade = -(0.75 * log(0.75) + 0.25 * log(0.25)) / log(3)  # 12 red, 4 blue, no green
    assert found.grade.value == report.scores["grade"].value == pytest.approx(grade)
    assert found.does == (0.75, 0.25, 0) and found.can == (0.75, 1, None)
    assert found.never == ("green",)
    assert found.under_diversification == pytest.approx(1 - of_car / 2)
    assert found.over_diversification == pytest.approx((0.25 + 0) / 2)
    assert report.scores["named_kept"].value == pytest.approx(14 / 16)
    assert {one.prompt for one in found.by_prompt} == {*BY_HAND} - {"a night"}
    assert [one.changed for one in found.by_prompt if one.named] == [(22, 23), ()]


def test_two_runs_are_compared_by_a_binomial_test_of_their_numbers_of_values():
    def run(values):
        p, rooms = one_hot(torch.tensor(values), 2).double(), range(len(values) // 2)
        rows = {f"room {i}": [2 * i, 2 * i + 1] for i in rooms}
        light = Attribute("light", ("dark", "bright"))
        return [attribute_scores(light, p, rows, dict.fromkeys(rows))]

    test = binomial_test(run([0, 0] * 7 + [0, 1]), run([0, 1] * 6 + [0, 0] * 2))
    assert (test.more, test.fewer, test.ties) == (6, 1, 1)
    assert test.p_value == pytest.approx(2 * (1 + 7) / 2**7)  # 0 or 1 of 7 tosses, either way
    assert binomial_test([], []).p_value == 1


def test_a_judges_flips_are_corrected_within_the_interval_in_95_of_100_draws():
    shares, inside = torch.tensor([0.6, 0.3, 0.1]), 0
    for seed in range(100):
        g = torch.Generator().manual_seed(seed)
        true = torch.multinomial(shares, 300, replacement=True, generator=g)
        other = (true + torch.randint(1, 3, true.shape, generator=g)) % 3
        judged = torch.where(torch.rand(300, generator=g) < 0.25, other, true)
        truth = one_hot(true, 3).double()
        truth[60:] = torch.nan  # 60 images are labelled
        found = reliability(one_hot(judged, 3).double(), truth, torch.ones(300, dtype=torch.bool))
        value, low, high = found.does[0]
        assert low < value < high and found.labelled == 60
        inside += low <= 0.6 <= high
    assert 90 <= inside <= 99
    assert abs(found.does[0].value - 0.6) < abs(float((judged == 0).double().mean()) - 0.6) + 0.1
    assert reliability(truth, truth * torch.nan, true > 0) is None


def test_answers_have_a_confidence_and_are_about_one_file(tmp_path):
    rows = [("a/0.png", "colour", "red", 0.8), ("b/0.png", "colour", "blue", 1)]
    rows += [("1.png", "colour", "red", 1), ("1.png", "colour", "BLUE ", 1)]
    found = Answers.read(table(tmp_path / "seen.csv", rows))
    files = [tmp_path / name for name in ("a/0.png", "b/0.png", "a/1.png", "a/2.png")]
    p = found.probabilities(files, COLOUR)
    assert p[:3].tolist() == [pytest.approx([0.8, 0.1, 0.1]), [0, 1, 0], [0.5, 0.5, 0]]
    assert p[3].isnan().all()
    with pytest.raises(ValueError, match=r"1.png, which is .*a/1.png and .*b/1.png: name the fol"):
        found.probabilities([tmp_path / "b/1.png"], COLOUR)
    for text, words in (
        ("file,attribute,value\n,colour,", "line 2 lacks a file, attribute or value"),
        ("file,attribute,value,confidence\n0.png,x,y,2", "line 2: confidence .* got '2'"),
        ("file,attribute,value", "has no answers"),
    ):
        (tmp_path / "wrong.csv").write_text(text)
        with pytest.raises(ValueError, match=f"wrong.csv.*{words}"):
            Answers.read(tmp_path / "wrong.csv")


def test_confidence_may_be_zero_or_tiny_and_columns_are_named_in_any_case(tmp_path):
    rows = [("0.png", "colour", "red", "1e-05"), ("1.png", "colour", "red", "")]
    path = table(tmp_path / "seen.csv", rows, ("File", " Attribute", "VALUE", "Confidence"))
    confidences = {("0.png", "colour"): [("red", 1e-5)], ("1.png", "colour"): [("red", 1.0)]}
    assert Answers.read(path).of == confidences
    row = {"Image": "0.png", "Attribute": "number", "Value": 0, "Confidence": 0}
    (tmp_path / "seen.jsonl").write_text(json.dumps(row))
    assert Answers.read(tmp_path / "seen.jsonl").of == {("0.png", "number"): [("0", 0.0)]}
    for wrong in (True, "nan", [1]):
        (tmp_path / "seen.jsonl").write_text(json.dumps(row | {"Confidence": wrong}))
        with pytest.raises(ValueError, match="confidence must lie between 0 and 1"):
            Answers.read(tmp_path / "seen.jsonl")


def test_a_model_that_answers_needs_files(tmp_path, monkeypatch):
    save_tar(tmp_path / "cars.tar", {"0.png": b""})
    monkeypatch.setattr(answers, "pipeline", lambda task, **_: Mock())
    with pytest.raises(ValueError, match=r"vlm needs files, and .*cars.tar/0.png .*: unpack it"):
        Questions(tmp_path / "vlm").probabilities([tmp_path / "cars.tar" / "0.png"], COLOUR)


def test_a_models_answers_are_kept_beside_the_images_and_asked_once(tmp_path, monkeypatch):
    folder = save_batch(tmp_path / "run", greys(*range(4)), [{"prompt": "a car"}] * 4)
    said = iter(["It is red.", Killed(), "blue", "dark blue?", "I cannot tell", "green"])
    ask = Mock(side_effect=lambda **_: [{"generated_text": _next(said)}])
    monkeypatch.setattr(answers, "pipeline", lambda task, **_: ask)
    files = sorted(folder.glob("*.png"))
    with pytest.raises(Killed):
        Questions(tmp_path / "vlm").probabilities(files, COLOUR)
    kept = folder / "answers-vlm.jsonl"
    kept.write_text(kept.read_text() + '{"file": "1.p')  # torn
    p = Questions(tmp_path / "vlm").probabilities(files, COLOUR)
    assert p.nan_to_num(-1).argmax(1).tolist()[:3] == [0, 1, 1] and p[3].isnan().all()
    assert ask.call_count == 5
    [image, question] = ask.call_args.kwargs["text"][0]["content"]
    assert image["image"].size == (8, 8) and "Which colour does" in question["text"]
    again = Questions(tmp_path / "vlm").probabilities(files, COLOUR)
    assert torch.equal(again.nan_to_num(), p.nan_to_num()) and ask.call_count == 5
    assert Answers.read(kept).probabilities(files, COLOUR)[:3].tolist() == p[:3].tolist()
    other = Attribute("What colour is it?", COLOUR.values)
    Questions(tmp_path / "vlm").probabilities(files[:1], other)
    assert ask.call_args.kwargs["text"][0]["content"][1]["text"].startswith("What colour is it? A")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="run cannot answer questions about images: "):
        Questions(folder)


def _next(said):
    if isinstance(value := next(said), Killed):
        raise value
    return value


def test_a_table_of_grades_is_read(tmp_path):
    question, values = "What colour is the car?", "{'red', 'blue'}"
    columns = ("concept", "prompt", "attribute", "attribute_values")
    rows = [("a car", "a car at night", question, values), ("a car", "a car", question, values)]
    content = open_benchmark(str(table(tmp_path / "grade.csv", rows, columns)))
    [attribute] = attributes_in(content, "here")
    assert attribute.values == ("blue", "red") and content["images_per_prompt"] == 100
    assert attribute.prompts == {"a car at night": None, "a car": None}
    wrong = table(tmp_path / "grade.csv", [("a", "b", question, "red, blue")], columns)
    with pytest.raises(ValueError, match=r"grade.csv, line 2 has no set of values, but 'red, bl"):
        open_benchmark(str(wrong))


def write_dimcim(root, attributes, dense):
    """Files of COCO-DIMCIM's form about buses; returns the path of the dense prompts."""
    rows = [
        {"dense_prompt": text, "attribute_type": kind, "attribute": value}
        for text, kind, value in dense
    ]
    coarse = {"coarse_prompt": "a bus in a street", "coco_seed_caption": "A red bus."}
    prompts = {"concept": "bus", "coarse_dense_prompts": [coarse | {"dense_prompts": rows}] * 2}
    for name, content in (("dense_prompts", prompts), ("seed_captions_attributes", attributes)):
        path = root / name / f"bus_{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return root / "dense_prompts" / "bus_dense_prompts.json"


def test_does_and_can_of_a_file_of_coco_dimcims_are_those_computed_by_hand(tmp_path):
    given = {"attributes": {"color": ["red", "blue"], "type": ["city", "tour", "school"]}}
    dense = [("a blue bus", "color", "blue"), ("a tour bus", "type", "tour")]
    path = write_dimcim(tmp_path, given, [*dense, ("a bus, blue", "color", "blue")])
    said = said_by(invoke(benchmark.main, path, "--output", tmp_path / "bus"))
    assert "4 prompts and 2 attributes" in said and "--images-per-prompt 30" in said
    seen = {  # colour and type of four images of each prompt
        "a bus in a street": (["red"] * 3 + ["blue"], ["city"] * 2 + ["tour"] * 2),
        "a blue bus": (["blue"] * 3 + ["red"], ["city"] * 4),
        "a tour bus": (["red"] * 4, ["tour"] + ["school"] * 3),
        "a bus, blue": (["blue"] * 4, ["city"] * 4),
    }
    prompts = open_prompts(str(tmp_path / "bus" / "prompts.jsonl")).texts
    assert {*prompts} == {*seen}
    rows = [{"prompt": prompt} for prompt in prompts for _ in range(4)]
    folder = save_batch(tmp_path / "images", greys(*range(0, 160, 10)), rows)
    answered = [
        (f"{4 * i + j}.png", kind, value)
        for i, prompt in enumerate(prompts)
        for kind, values in zip(("color", "type"), seen[prompt], strict=True)
        for j, value in enumerate(values)
    ]
    told = table(tmp_path / "seen.csv", answered, ("file", "attribute", "value"))
    options = ["--attributes", tmp_path / "bus" / "attributes.json", "--judge", told, *WORDS]
    succeeds(command.main, folder, *options, "--output", tmp_path / "report")
    [run] = json.loads((tmp_path / "report" / "report.json").read_text())["runs"]
    colour, kind = run["attributes"]
    assert (colour["does"], colour["can"]) == ([0.75, 0.25], [None, (0.75 + 1) / 2])
    assert (kind["does"], kind["can"]) == ([0.5, 0.5, 0], [None, 0.25, None])
    assert colour["never"] == [] and kind["never"] == ["school"]


def test_files_of_coco_dimcims_that_do_not_fit_are_refused(tmp_path):
    given = {"attributes": {"color": ["red", "blue"]}}
    path = write_dimcim(tmp_path, given, [("a pink bus", "color", "pink")])
    with pytest.raises(ValueError, match=r"bus_dense.*no value 'pink' of 'color' in the file's"):
        open_benchmark(str(path))
    path = write_dimcim(tmp_path, {"colors": []}, [])
    with pytest.raises(ValueError, match=r"json is not of COCO-DIMCIM's form, at 'attributes'"):
        open_benchmark(str(path))
    (tmp_path / "seed_captions_attributes" / "bus_seed_captions_attributes.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"no file .*bus_seed_captions_attributes\.json"):
        open_benchmark(str(path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('prompts = ["a"]\nattributes = 1', "a table of attributes and a list of prompts"),
        ("prompts = [1]\n[attributes]\na = ['b', 'c']", "prompt 1 must be such as"),
        (
            "prompts = [{prompt = 'x', open = ['z']}]\n[attributes]\na = ['b', 'c']",
            "no attribute 'z'",
        ),
        ("prompts = [{prompt = 'x', named = {a = 'd'}}]\n[attributes]\na = ['b', 'c']", "'d' of"),
        ("prompts = []\n[attributes]\na = ['b', 'c']", "no prompt leaves"),
        ("a = 1", "must have attributes and prompts"),
        ("images_per_prompt = 0\nprompts = []\nattributes = {}", "at least 1, got 0"),
        ("a =", "is not TOML"),
    ],
)
def test_a_benchmark_of_another_form_is_refused(tmp_path, text, words):
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(ValueError, match=words):
        open_benchmark(str(tmp_path / "own.toml"))
    with pytest.raises(FileNotFoundError, match="no benchmark cars: give faces, photos, or a file"):
        open_benchmark("cars")


@pytest.mark.parametrize("name", ["faces", "photos"])
def test_benchmarks_and_long_prompts_name_what_the_probe_and_the_model_read(name):
    probe = load_probe(ASSETS / f"demo-{name}-probe")
    attributes = attributes_in(open_benchmark(name), name)
    assert {one.name: [*one.values] for one in attributes} == probe.attributes
    for place, one in enumerate(attributes, start=1):
        asked = probe.asked([*one.prompts])
        assert [look[place] for look in asked] == [*one.prompts.values()]
    long, tuning = (
        open_prompts(f"{ASSETS}/prompts/{name}-long{it}.txt").texts for it in ("", "-tuning")
    )
    assert len({*long, *tuning}) == 48
    tokens = json.loads((ASSETS / f"demo-{name}/tokenizer/tokenizer_config.json").read_text())
    words = [len(prompt.replace(",", " ,").replace("'", " '").split()) for prompt in long + tuning]
    assert max(words) + 2 <= tokens["model_max_length"]
    named = [sum(value is not None for value in look[1:]) for look in probe.asked(long + tuning)]
    assert {*named} == ({4, 5} if name == "faces" else {1})


@pytest.mark.usefixtures("unrendered")
def test_a_benchmark_is_written_generated_and_evaluated(tmp_path, tiny_sdxl_folder):
    own = tmp_path / "cars.toml"
    prompts = "{prompt = 'a car'}, {prompt = 'a red car', named = {colour = 'red'}}"
    own.write_text(f"images_per_prompt = 4\nprompts = [{prompts}]\n[attributes]\n")
    own.write_text(own.read_text() + "colour = ['red', 'blue']\nsize = ['big', 'small']\n")
    folder = tmp_path / "bench"
    said = said_by(invoke(benchmark.main, own, "--output", folder))
    assert "cars.toml: 2 prompts and 2 attributes" in said
    assert "prompts.jsonl --model MODEL --images-per-prompt 4" in said
    faces = said_by(invoke(benchmark.main, "faces", "--output", tmp_path / "faces"))
    assert "prompts.jsonl --model assets/demo-faces --images-per-prompt 8" in faces
    assert_refused(invoke(benchmark.main, own, "--output", folder), "exists: name a new folder")
    for run, diversity in (("a", 0), ("b", 0.5)):
        options = ("--images-per-prompt", 4, "--steps", 2, "--diversity", diversity)
        images = ("--model", tiny_sdxl_folder, "--output", tmp_path / run, "--device", "cpu")
        succeeds(generate.main, folder / "prompts.jsonl", *images, *options)
    rows = [
        (f"{run}/{i:06d}.png", "colour", ["red", "blue"][i % 2]) for run in "ab" for i in range(8)
    ]
    rows += [(f"{run}/{i:06d}.png", "size", "big") for run in "ab" for i in range(8)]
    seen = table(tmp_path / "seen.csv", rows, ("file", "attribute", "value"))
    right = table(tmp_path / "right.csv", rows[:6], ("file", "attribute", "value"))
    words = [tmp_path / "a", tmp_path / "b", *WORDS, "--attributes", folder / "attributes.json"]
    words += ["--judge", seen, "--labelled", right, "--output", tmp_path / "report"]
    said = said_by(invoke(command.main, *words))
    assert "GRADE" in said and "seen.csv has answers about 8 of 8 images." in said
    assert said.count("right.csv has answers about 6 of 8 images; label 30 or more") == 1
    assert said.count("right.csv has answers about 0 of 8 images; label 30 or more") == 1
    content = json.loads((tmp_path / "report" / "report.json").read_text())
    schema = json.loads((ASSETS.parent / "docs/report.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(content)
    colour, size = content["runs"][0]["attributes"]
    assert (colour["does"], colour["can"]) == ([0.5, 0.5], [0.5, None])
    assert colour["judge"]["accuracy"][0] == 1 and colour["judge"]["labelled"] == 6
    assert size["never"] == ["small"] and size["named_kept"] is None
    assert content["comparison"]["binomial_test"]["ties"] == 3
    page = (tmp_path / "report" / "report.html").read_text()
    assert page.index("<h3>size</h3>") < page.index("<h3>colour</h3>")  # varies least
    assert "colour is not red in 2 of 4" in page and 'href="prompts-0001.html"' in page
    by_prompt = (tmp_path / "report" / "prompts-0001.html").read_text()
    assert 'src="../a/000000.png"' in by_prompt and "red 2" in by_prompt

    for form, start in (("csv", "score,run,"), ("markdown", "| score |"), ("latex", "\\begin{tab")):
        printed = invoke(command.main, *words, "--format", form).stdout
        assert printed.startswith(start) and "wrote" not in printed
    words = [tmp_path / "a", *words[2:], "--fail-below"]
    assert invoke(command.main, *words, "named-kept=0.5").exit_code == 0
    failed = invoke(command.main, *words, "named-kept=0.51")
    assert failed.exit_code == 1 and "a: named kept is below 0.51" in failed.output
    assert_refused(invoke(command.main, *words, "greed=1"), "did you mean 'grade'?")
    assert_refused(invoke(command.main, *words, "vendi=nan"), "'vendi=nan' needs a finite number")
    missed = invoke(command.main, *words, "Vendi, truncated=1")
    assert missed.exit_code == 1 and "a: Vendi, truncated was not computed" in missed.output
    rows = [(file, "Colour", value) for file, _, value in rows]
    other = table(tmp_path / "other.csv", rows, ("file", "attribute", "value"))
    for option in ("--judge", "--labelled"):
        refused = invoke(command.main, *words[:-1], option, other)
        assert_refused(refused, "other.csv has answers about none of the images: check")
    assert_refused(invoke(command.main, tmp_path / "a", *WORDS, "--judge", seen), "--attributes")
    gone = invoke(command.main, tmp_path / "a", *WORDS, "--judge", "gone.csv")
    assert_refused(gone, "'--judge': Path 'gone.csv' does not exist.")
