"""Files in the forms of benchmarks."""

import json
from pathlib import Path
from typing import Any


def captions(images: int) -> list[dict[str, Any]]:
    """MS-COCO annotations, two of each image."""
    return [
        {"id": 10 * image + number, "image_id": image, "caption": f"caption {image}, {which}"}
        for image in range(images)
        for number, which in enumerate(("first", "second"))
    ]


def dimcim() -> list[dict[str, Any]]:
    """Two concepts; the dog's setting has one value only."""
    return [
        {
            "concept": concept,
            "coarse_dense_prompts": [
                {
                    "coarse_prompt": coarse,
                    "dense_prompts": [
                        {"attribute_type": kind, "attribute": value, "dense_prompt": dense}
                        for value, dense in values
                    ],
                }
                for coarse, kind, values in groups
            ],
        }
        for concept, groups in (
            (
                "dog",
                (
                    ("a dog", "color", (("black", "a black dog"), ("brown", "a brown dog"))),
                    ("a dog asleep", "setting", (("outdoors", "a dog asleep outdoors"),)),
                ),
            ),
            ("mug", (("a mug", "color", (("red", "a red mug"), ("blue", "a blue mug"))),)),
        )
    ]


def write_json(folder: Path, content: Any) -> str:
    (folder / "file.json").write_text(json.dumps(content))
    return str(folder / "file.json")
