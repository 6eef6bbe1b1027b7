"""Hostile visitors: what a browser can be made to send, and what must not come of it."""

import json
import math
import os
import random
import sys
from pathlib import Path
from threading import Thread

import pytest

from tests.helpers.app_at_hand import ENDS, served, usual, visitors

SECRET = "the secret of the canary"
COUNT = 300
MEGABYTE = "x" * 10**6


class OpenFiles:
    """Which files this process opens while it is watched, and which of them to write."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.written: set[str] = set()
        self.is_on = False
        sys.addaudithook(self._notice)

    def _notice(self, event, given):
        if not self.is_on or event != "open" or isinstance(given[0], int):
            return
        path = os.fsdecode(given[0])
        mode, flags = given[1] or "", given[2]
        is_written = set(mode) & set("wax+") or (isinstance(flags, int) and flags & 3)
        (self.written if is_written else self.read).add(path)


OPENED = OpenFiles()  # an audit hook cannot be taken away again


@pytest.fixture(scope="module")
def canary(tmp_path_factory):
    """A file that nobody may read, in a folder where nobody may write."""
    path = tmp_path_factory.mktemp("outside") / "canary.safetensors"
    path.write_text(SECRET)
    return path


@pytest.fixture(scope="module")
def address(tiny_sdxl_folder, tiny_probe_folder):
    with served(tiny_sdxl_folder, tiny_probe_folder) as address:
        yield address


def hostile_value(random, canary):
    """Something that no field of the page sends."""
    file = {"path": str(canary), "meta": {"_type": "gradio.FileData"}, "orig_name": "a"}
    numbers = (None, True, -1, 3.5, 10**400, float("nan"), float("inf"), 16_000)
    texts = ("", "\ud800", "\0", "<script>alert(1)</script>", "../" * 20 + "etc/passwd")
    texts += (str(canary), canary.as_uri(), f"{canary.parent}/prompts.jsonl")
    texts += (MEGABYTE if random.random() < 0.2 else "x" * 501, "\n".join(map(str, range(5000))))
    around = f"{canary.parent}/../{canary.parent.name}/{canary.name}"
    files = (file, file | {"path": around}, file | {"url": canary.as_uri()}, [file, file])
    others = ([], [[["deep"]] * 9], {}, {"__type__": "update", "value": str(canary)})
    return random.choice([*numbers, *texts, *files, file | {"is_stream": True}, *others])


def hostile_call(random, visitor, canary):
    """One action of the page with hostile values; returns all that the server says."""
    action = random.choice(["generate"] * 4 + ["load"] * 4 + sorted(visitor.actions))
    data = usual() if action == "generate" else [None] * random.randrange(3)
    for place in range(len(data) or 1):
        if random.random() < 0.3:
            data[place : place + 1] = [hostile_value(random, canary)]
    if random.random() < 0.1:
        data = data[: random.randrange(len(data) + 1)] + [0] * random.randrange(3)
    event = {"index": hostile_value(random, canary), "value": hostile_value(random, canary)}
    return list(visitor.messages(action, *data, event=random.choice([None, event, []])))


def test_hostile_inputs_do_no_harm(address, canary):
    before = sorted(canary.parent.iterdir())
    with visitors(address, 2) as callers:
        said = [[], []]

        def attack(number):
            mine = random.Random(number)
            for _ in range(COUNT // 2):
                said[number] += hostile_call(mine, callers[number], canary)

        OPENED.is_on = True
        attackers = [Thread(target=attack, args=[number]) for number in range(2)]
        for attacker in attackers:
            attacker.start()
        for attacker in attackers:
            attacker.join()
        assert callers[0].call("generate", *usual())["success"]
        OPENED.is_on = False
        ended = [one for one in said[0] + said[1] if one["msg"] in ENDS]
        assert len(ended) == COUNT
        assert sum(not one["success"] for one in ended) > COUNT / 4
        text = json.dumps(said)
        assert "Traceback" not in text and 'File \\"' not in text
        assert SECRET not in text
        assert str(canary) not in json.dumps(callers[0].call("load", str(canary)))
    assert sorted(canary.parent.iterdir()) == before
    assert canary.read_text() == SECRET
    assert not {path for path in OPENED.read if canary.parent.name in path}
    assert any(path.endswith(".png.part") or ".writing-" in path for path in OPENED.written)
    outside = [path for path in OPENED.written if "vendi-guidance-app-" not in path]
    assert [path for path in outside if not path.startswith(("/dev/", "/proc/"))] == []


@pytest.mark.parametrize(
    "name", ["{canary}", "/etc/passwd", "..%2f..%2f..%2fetc/passwd", "{folder}/../{canary}"]
)
def test_no_path_is_served(address, canary, name):
    path = name.format(canary=canary, folder=Path(__file__).parent)
    with visitors(address) as [visitor]:
        for route in ("gradio_api/file=", "file=", "static/", "assets/", "gradio_api/stream/"):
            found = visitor.http.get(route + path)
            assert found.status_code in (307, 400, 403, 404, 405), found
            assert SECRET not in found.text and "root:" not in found.text


def test_an_uploaded_name_stays_in_its_folder_and_an_error_is_a_sentence(address, canary, capfd):
    with visitors(address) as [visitor]:
        for name in ("../../evil", canary.with_suffix(""), "..\\evil", "x" * 3000):
            files = {"files": (f"{name}.safetensors", b"no tensors")}
            stored = visitor.http.post("gradio_api/upload", files=files).json()[0]
            assert "vendi-guidance-app-" in str(Path(stored).resolve())
            sent = {"path": stored, "meta": {"_type": "gradio.FileData"}}
            error = visitor.call("load", sent)["output"]["error"]
            assert error.startswith("Not loaded: the file is not a readable safetensors file")
        assert "must be" in visitor.call("generate", *usual(diversity=math.nan))["output"]["error"]
    assert canary.read_text() == SECRET and "Traceback" not in "".join(capfd.readouterr())
