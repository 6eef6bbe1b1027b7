"""Prompts from files of any format and size."""

import sys

import pytest

from vendi_guidance.storage.prompt_files import open_prompts


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("prompts.txt", "cat\n\n  dog \n\n"),
        ("prompts.txt", "\ufeffcat\r\ndog"),
        ("prompts.jsonl", '{"prompt": "cat"}\n\n{"prompt": "dog", "seed": 3}\n'),
        ("prompts.csv", "id,prompt\n1,cat\n2,dog\n"),
        ("PROMPTS.CSV", '\n"prompt"\n"cat"\n\n"dog"\n'),
        ("quotes.csv", 'prompt\ncat\n"a ""big"" dog,\nasleep"\n'),
        ("parti.tsv", 'Prompt\tCategory\tNote\ncat\tAnimals\t\ndog\t\t"Dogs" at poker\n'),
        ("quotes.tsv", 'Prompt\tNote\ncat\t\n"a ""big"" dog,\nasleep"\t\n'),
        ("prompts.csv", "\ufeffn; Text \n1;cat\n2;dog;\n"),
        ("prompts.csv", "n|Prompts\n1|cat\n2|dog\n"),
        ("prompts.jsonl", '{"caption": ["cat", "kitten"]}\n{"text": "dog"}\n'),
        ("prompts.json", '["cat", "dog"]'),
        ("prompts.json", '{"prompts": ["cat", "dog"]}'),
        ("prompts.json", '\n[{"Prompt": "cat"}, {"text": "dog", "n": 1}]'),
        ("prompts.json", '{"prompt": "cat"}\n{"prompt": "dog"}\n'),
        ("prompts.json", '{\n  "prompts": [\n    "cat",\n    "dog"\n  ]\n}\n'),
    ],
)
def test_prompts_are_read_from_every_kind_of_file(tmp_path, name, content):
    file = tmp_path / name
    dog = 'a "big" dog,\nasleep' if name.startswith("quotes") else "dog"
    for encoding in ("utf-8", "utf-16"):  # as PowerShell's > writes it
        text = content.lstrip("\ufeff") if encoding == "utf-16" else content
        file.write_bytes(text.encode(encoding))
        assert open_prompts(str(file)).texts == ["cat", dog]


def test_parquet_is_read_with_pyarrow(tmp_path, monkeypatch):
    parquet, file = pytest.importorskip("pyarrow.parquet"), str(tmp_path / "a.parquet")
    table = pytest.importorskip("pyarrow").table
    parquet.write_table(table({"Caption": [["cat", "kitten"], ["dog"]], "image": [b"", b""]}), file)
    assert open_prompts(file).texts == ["cat", "dog"]
    parquet.write_table(table({"image": [b""]}), file)
    with pytest.raises(ValueError, match=r"row 1 has no text under 'prompt': .* has image"):
        open_prompts(file)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"a\.parquet is not Parquet: "):
        open_prompts(file)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"a\.parquet needs pyarrow: pip install"):
        open_prompts(file)


def test_other_text_is_a_prompt_unless_it_looks_like_a_path():
    for text in ("a cat, 3.5 mm lens", "cat", "a cat w/ a hat.", "Mr.Bean", "the end.", "3.5"):
        assert open_prompts(text).texts == [text]
    for path in ("prompts.yaml", "no/prompts", r"C:\prompts", "my prompts.xlsx", "and/or"):
        with pytest.raises(ValueError, match=r"looks like a file, .* end in \.txt, \.jsonl, \.csv"):
            open_prompts(path)
    for wrong, message in (("  ", "the prompt is empty"), ("a \udcff cat", "the prompt has")):
        with pytest.raises(ValueError, match=message):
            open_prompts(wrong)
    with pytest.raises(FileNotFoundError, match=r"no prompt file 'no/such\.txt'"):
        open_prompts("no/such.txt")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", " \n\n", r"a\.txt has no prompts"),
        ("a.csv", "prompt\n", r"a\.csv has no prompts"),
        ("a.csv", "title,id\ncat,1\n", r"a\.csv, line 2 has no text under 'prompt': .* title, id"),
        ("a.csv", "prompt\na, b\n", r"a\.csv, line 2 has 2 cells for columns prompt: put texts"),
        ("a.json", "[1]", r"a\.json, item 1 is neither a text nor a JSON object"),
        ("a.json", "[" * 100_000, r"a\.json is not JSON"),
        ("a.json", '{\n"prompt": "cat"', r"a\.json, line 1 is not JSON"),
        ("a.json", '{\n"title": "cat"}', r"a\.json, item 1 has no text under 'prompt'"),
        ("a.jsonl", '{"text": [3]}', r"a\.jsonl, line 1 has \[3\] for a text: give a text"),
        ("a.csv", "id,prompt\n1,cat\n2\n", r"a\.csv, line 3 has no text under 'prompt'"),
        ("a.csv", 'prompt\n"cat\n', r"a\.csv, line 2 is not CSV"),
        ("a.jsonl", '{"prompt": "cat"}\n{"prompt": \n', r"a\.jsonl, line 2 is not JSON"),
        ("a.jsonl", '{"title": 1}\n', r"a\.jsonl, line 1 has no text under 'prompt': .* title"),
        ("a.jsonl", '{"prompt": 3}\n', r"a\.jsonl, line 1 has no text under 'prompt'"),
        ("a.jsonl", '["cat"]\n', r"a\.jsonl, line 1 is not a JSON object"),
        ("a.txt", b"caf\xe9\n", r"a\.txt is not UTF-8"),
        ("a.jsonl", '{"prompt": "a \\ud800 cat"}', r"line 1 has '\\ud800', half of a surrogate"),
        # JSON over several lines, or hostile to the parser
        ("a.jsonl", '{"prompt": "a"\n"x": 1}', r"a\.jsonl, line 1"),
        ("a.jsonl", "[" * 100_000, r"a\.jsonl, line 1"),
        ("a.jsonl", '{"prompt": ' + "9" * 5000 + "}", r"a\.jsonl, line 1"),
        ("a.jsonl", '{"prompt": "a"}\n]\n[', r"a\.jsonl, line 2"),
    ],
)
def test_a_bad_prompt_file_is_named_with_its_line(tmp_path, name, content, message):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as caught:
        open_prompts(str(file))
    assert "\n" not in str(caught.value)
