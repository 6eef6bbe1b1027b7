"""The nodes, with stand-ins for the parts of ComfyUI that they import."""

import asyncio
import importlib
import json
import math
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import pytest
import torch
from PIL import Image

from integrations.comfyui.schedule import keep_schedule
from integrations.comfyui.scoring import CELL, score
from vendi_guidance.guidance.objectives import OBJECTIVES

PACK = Path(__file__).parents[2] / "integrations" / "comfyui"
[EXAMPLE] = (PACK / "example_workflows").glob("*.json")
WORKFLOW = json.loads(EXAMPLE.read_text())
SAVED = {  # by workflows of version 0.4.0
    "diversity": 0.5,
    "objective": "conditional-vendi",
    "memory": "session",
    "memory_name": "default",
}


class Model:
    """A ModelPatcher with its wrappers."""

    def __init__(self, wrappers=()):
        self.wrappers = list(wrappers)

    def clone(self):
        return Model(self.wrappers)

    def add_wrapper_with_key(self, kind, key, wrapper):
        self.wrappers.append((kind, key, wrapper))

    def remove_wrappers_with_key(self, kind, key):
        self.wrappers = [one for one in self.wrappers if one[:2] != (kind, key)]


@pytest.fixture
def nodes(monkeypatch, tmp_path):
    """The module of the nodes, and its user directory."""
    latest, patcher_extension, folder_paths = MagicMock(), MagicMock(), MagicMock()
    latest.ComfyExtension = object
    latest.io.ComfyNode = type("ComfyNode", (), {"hidden": SimpleNamespace(unique_id="5")})
    latest.io.Schema = SimpleNamespace
    latest.io.NodeOutput = lambda *result, ui=None: SimpleNamespace(result=result, ui=ui)
    folder_paths.get_output_directory.return_value = str(tmp_path / "output")
    for kind in ("Model", "Float", "Combo", "String", "Image", "ClipVision"):
        inputs = getattr(latest.io, kind)
        inputs.Input = lambda id, **about: SimpleNamespace(id=id, about=about)
    latest.ui.PreviewImage = lambda image, cls: Mock(as_dict=lambda: {"images": [image]})
    patcher_extension.WrappersMP.OUTER_SAMPLE = "outer"
    patcher_extension.WrappersMP.SAMPLER_SAMPLE = "sampler_sample"
    folder_paths.get_user_directory.return_value = str(tmp_path)
    for name, module in {
        **dict.fromkeys(["comfy_api", "comfy"], MagicMock()),
        "comfy_api.latest": latest,
        "comfy.patcher_extension": patcher_extension,
        "folder_paths": folder_paths,
        "server": SimpleNamespace(PromptServer=SimpleNamespace(instance=MagicMock())),
        "aiohttp": SimpleNamespace(web=SimpleNamespace(json_response=lambda *given, **how: how)),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    names = "integrations.comfyui.page", "integrations.comfyui.nodes"
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module(names[1])
    for name in names:
        sys.modules.pop(name, None)


def patched(nodes, model=None, diversity=0.5, objective="conditional-vendi", memory="this batch"):
    execute = nodes.DiverseBatch.execute
    return execute(model or Model(), diversity, objective, memory, "default").result[0]


def test_the_entry_point_lists_both_nodes_with_the_inputs_they_are_executed_with(nodes):
    pack = importlib.import_module("integrations.comfyui")
    extension = asyncio.run(pack.comfy_entrypoint())
    listed = asyncio.run(extension.get_node_list())
    assert listed == [nodes.DiverseBatch, nodes.DiversityScore]
    for node in listed:
        code = node.execute.__func__.__code__
        names = [one.id for one in node.define_schema().inputs]
        assert names == [*code.co_varnames[1 : code.co_argcount]]


def test_the_node_wraps_the_sampler_of_a_copy_of_the_model_unless_diversity_is_0(nodes):
    model = Model()
    outer, (kind, key, wrapper) = patched(nodes, model).wrappers
    assert outer == ("outer", "vendi_guidance", keep_schedule)
    assert (kind, key) == ("sampler_sample", "vendi_guidance") and callable(wrapper)
    assert model.wrappers == patched(nodes, diversity=0.0).wrappers == []


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_of_two_nodes_in_a_row_the_settings_of_the_last_one_count(nodes, tmp_path, objective):
    others = [("sampler_sample", "another", print)]
    first = patched(nodes, Model(others), diversity=1.0)
    twice = patched(nodes, first, objective=objective, memory="file")
    [other, _, (*_, wrapper)] = twice.wrappers
    assert other == others[0]
    assert (wrapper.settings.diversity, wrapper.settings.objective) == (0.5, objective)
    assert wrapper.store.kind == "file" and wrapper.store.folder == tmp_path / "vendi_guidance"
    assert patched(nodes, twice, diversity=0.0).wrappers == others


NAME = "begins with a letter, a digit, - or _, .* spaces and dots, at most 100 in all; got '%s'"
WRONG = [
    ({"diversity": math.nan}, "diversity must be between 0 and 1, got nan"),
    ({"diversity": 1.5}, "diversity must be between 0 and 1, got 1.5"),
    ({"memory": "forever"}, "one of session, this batch, file, got 'forever'"),
    ({"memory": "session", "memory_name": ".hidden"}, NAME % ".hidden"),
    ({"begin_with": "nothing ../a"}, "what saved images have there, or empty; got 'nothing ../a'"),
    *(
        ({"memory": "file", "memory_name": name}, NAME % re.escape(repr(name)[1:-1]))
        for name in ("", "..", "../a", "a/b", "a" * 101, "a\nb")
    ),
]


@pytest.mark.parametrize(("inputs", "message"), WRONG)
def test_wrong_inputs_are_refused_before_a_workflow_runs_or_when_linked(nodes, inputs, message):
    told = nodes.DiverseBatch.validate_inputs(**inputs)
    assert re.search(message, told)
    given = {"diversity": 0.5, "objective": "vendi", "memory": "file", "memory_name": "a"}
    with pytest.raises(ValueError, match=re.escape(told)):
        nodes.DiverseBatch.execute(Model(), **{**given, **inputs})


def workflow_of(node):
    """As ComfyUI hands it to nodes, with a node in a subgraph."""
    inner = {"id": "a", "nodes": [{"id": 7, "type": "b"}]}
    most = {"id": "b", "nodes": [{"id": 6, "type": "c", "widgets_values": [0]}, node]}
    return {
        "nodes": [{"id": 3, "type": "a", "widgets_values": [0]}],
        "definitions": {"subgraphs": [inner, most]},
    }


@pytest.mark.parametrize("place", ["5", "3:7:5"])
@pytest.mark.parametrize("values", [[*SAVED.values()], [*SAVED.values(), "nothing"]])
def test_saved_workflows_say_what_an_image_began_with(nodes, monkeypatch, tmp_path, place, values):
    node = {"id": 5, "type": "VendiGuidanceDiverseBatch", "widgets_values": [*values]}
    drawn = workflow_of(node) if ":" in place else {"nodes": [node]}
    prompt = {place: {"inputs": dict(SAVED)}}
    hidden = SimpleNamespace(unique_id=place, prompt=prompt, extra_pnginfo={"workflow": drawn})
    monkeypatch.setattr(nodes.DiverseBatch, "hidden", hidden)
    for digest in ("a" * 64, "b" * 64):
        patched = nodes.DiverseBatch.execute(Model(), **SAVED, begin_with=digest).result[0]
        store = patched.wrappers[1][2].store
        assert (store.begin_with, store.images) == (digest, tmp_path / "output")
        store.note(f"{digest} nothing")
        assert node["widgets_values"] == [*SAVED.values(), f"{digest} nothing"]
        assert prompt[place]["inputs"] == SAVED | {"begin_with": f"{digest} nothing"}
    if ":" in place:
        assert drawn["nodes"][0]["widgets_values"] == [0]
        assert drawn["definitions"]["subgraphs"][1]["nodes"][0]["widgets_values"] == [0]


@pytest.mark.parametrize("sent", [None, {}, {"workflow": None}, {"workflow": {"nodes": []}}])
def test_who_calls_the_api_need_not_send_a_workflow(nodes, sent):
    page = sys.modules["integrations.comfyui.page"]
    page.record(SimpleNamespace(unique_id="5", prompt={}, extra_pnginfo=sent), "nothing")
    page.record(None, "nothing")


def test_a_name_matters_only_where_it_is_used(nodes):
    assert nodes.DiverseBatch.validate_inputs() is True  # all are linked
    for given in ((0.5, "this batch", ".."), (0.0, "file", ".."), (1.0, "file", "a.b 1-_")):
        inputs = dict(zip(("diversity", "memory", "memory_name"), given, strict=True))
        assert nodes.DiverseBatch.validate_inputs(**inputs) is True


def test_the_page_can_empty_a_memory(nodes, tmp_path):
    page = sys.modules["integrations.comfyui.page"]
    page.add_routes(tmp_path)
    server = sys.modules["server"].PromptServer.instance
    [forget] = [call.args[0] for call in server.routes.post.return_value.call_args_list]
    names = [f"{name} Model 4x4 3 all.txt" for name in ("a", "a b")]
    for name in names:
        (tmp_path / name).touch()

    def ask(**given):
        async def json():
            return {"memory": "file", "node": "7", **given}

        return asyncio.run(forget(SimpleNamespace(json=json)))

    assert ask(name="../a")["status"] == 400
    assert ask(name="a", memory="this batch") == {} and len([*tmp_path.iterdir()]) == 2
    assert ask(name="a") == {}
    assert [path.name for path in tmp_path.iterdir()] == names[1:]
    server.send_progress_text.assert_called_with("nothing remembered", "7")


def test_comfyui_may_answer_from_its_cache_only_where_nothing_is_remembered(nodes):
    def changes(**inputs):
        one, two = (nodes.DiverseBatch.fingerprint_inputs(**inputs) for _ in range(2))
        return one != two

    others = {"objective": "vendi", "memory_name": "default"}
    assert not changes(diversity=0.5, memory="this batch", **others)
    assert not changes(diversity=0.0, memory="file", **others)
    assert changes(diversity=0.5, memory="session", **others)
    assert changes(memory="file", **others)
    assert changes(diversity=0.5, **others)  # the memory is linked, and not known yet


def test_the_score_counts_different_images():
    black, white = torch.zeros(8, 8, 3), torch.ones(8, 8, 3)
    text, picture = score(torch.stack([black, white, black, white]))
    assert text.startswith("2.00 different images of 4 (Vendi score of colours)")
    assert text.endswith("most alike: 1 and 3, similarity 1.00")
    assert picture.shape == (1, 5 * CELL, 5 * CELL, 3)
    cells = picture[0, CELL // 2 :: CELL, CELL // 2 :: CELL, 0]
    expected = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]])
    torch.testing.assert_close(cells[1:, 1:], expected, atol=1e-4, rtol=0)
    assert cells[0, 1:].tolist() == cells[1:, 0].tolist() == [0, 1, 0, 1]
    text, picture = score(torch.rand(1, 5, 7, 4))  # transparency is left out
    assert text == "1.00 different images of 1 (Vendi score of colours)"
    assert picture.isfinite().all() and picture.shape[-1] == 3


def test_with_clip_what_images_show_is_compared(nodes):
    images = torch.rand(3, 8, 8, 3)
    images[0] = math.nan  # of a VAE that overflowed; saved as black
    rows = torch.tensor([[3.0, 0.0], [0.0, 1.0], [5.0, 0.0]])
    clip = SimpleNamespace(encode_image=lambda given: {"image_embeds": rows + 0 * given.mean()})
    shown = nodes.DiversityScore.execute(images, clip)
    text, picture = shown.result
    assert picture.isfinite().all()
    assert "of 3 (Vendi score of CLIP features)\nmost alike: 1 and 3" in text
    assert 1.8 < float(text.split()[0]) < 2 and picture.shape[0] == 1
    assert shown.ui == {"images": [picture], "text": (text,)}


def test_the_values_of_a_saved_workflow_stand_where_the_node_looks_for_them(nodes):
    """Files have them by position: inputs may be added at the end, not moved or renamed."""
    [saved] = [it for it in WORKFLOW["nodes"] if it["type"] == "VendiGuidanceDiverseBatch"]
    inputs = {one.id: one.about for one in nodes.DiverseBatch.define_schema().inputs}
    names = [*SAVED, "begin_with"]
    assert [*inputs][:7] == ["model", *SAVED, "undistilled", "begin_with"]
    assert all(about.get("optional") for about in [*inputs.values()][5:])  # older files lack them
    values = dict(zip(names, saved["widgets_values"], strict=True))
    assert values == SAVED | {"begin_with": ""} == {it: inputs[it]["default"] for it in names}
    assert all(values[name] in inputs[name]["options"] for name in ("objective", "memory"))
    assert nodes.DiverseBatch.validate_inputs(values["diversity"], values["memory"]) is True
    assert len(nodes.DiverseBatch.execute(Model(), **SAVED).result[0].wrappers) == 2


def test_the_pack_requires_this_package_and_the_registry_finds_what_it_shows():
    lines = (PACK / "requirements.txt").read_text().splitlines()
    [clone] = [line for line in lines if not line.startswith("#")]
    ours, pack = (
        tomllib.loads((folder / "pyproject.toml").read_text()) for folder in (PACK / clone, PACK)
    )
    assert ours["project"]["name"] == pack["project"]["name"] == "vendi-guidance"
    assert {"DisplayName", "PublisherId", "Icon"} <= pack["tool"]["comfy"].keys()
    assert all((PACK / name).is_file() for name in ("icon.svg", "README.md"))


def test_the_example_workflow_is_wired_as_the_nodes_are(nodes):
    by_id = {node["id"]: node for node in WORKFLOW["nodes"]}
    for link, start, output, end, entry, kind in WORKFLOW["links"]:
        assert by_id[start]["outputs"][output]["type"] == kind
        assert link in by_id[start]["outputs"][output]["links"]
        assert by_id[end]["inputs"][entry] == {
            "name": by_id[end]["inputs"][entry]["name"],
            "type": kind,
            "link": link,
        }
    for node in (nodes.DiverseBatch, nodes.DiversityScore):
        schema = node.define_schema()
        [drawn] = [each for each in by_id.values() if each["type"] == schema.node_id]
        sockets = [one["name"] for one in drawn["inputs"]]
        widgets = [one for one in schema.inputs if one.id not in sockets]
        assert drawn["widgets_values"] == [one.about["default"] for one in widgets]
    with Image.open(EXAMPLE.with_suffix(".jpg")) as thumbnail:
        assert EXAMPLE.stem == "Diverse Batch" and thumbnail.format == "JPEG"
