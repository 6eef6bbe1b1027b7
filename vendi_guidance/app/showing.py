"""What the page shows: images with their descriptions, and sentences about them, as HTML."""

from typing import Any

import gradio as gr
from markupsafe import Markup

from vendi_guidance.app.request import Request
from vendi_guidance.app.session import Generation, Session
from vendi_guidance.app.studio import Studio

MOST_IN_A_ROW = 8


def galleries(generation: Generation, model: str) -> list[Any]:
    """The finished images of both kinds with their descriptions, a prompt in each row."""
    columns = min(generation.request.images, MOST_IN_A_ROW)
    first = generation.request.seed
    return [
        gr.Gallery(
            [
                (path, f"Seed {first + i}, {model}, {name} guidance: “{generation.prompt(i)}”")
                for i, path in enumerate(arm.paths())
            ],
            columns=columns,
            visible=arm.done > 0,
        )
        for name, arm in generation.arms.items()
    ]


def request_text(request: Request, studio: Studio) -> Markup:
    """The model, and for each prompt its seeds and what is not done as it was written."""
    rows = []
    for place, prompt in enumerate(request.prompts):
        first = request.seed + place * request.images
        last = first + request.images - 1
        text = f"“{prompt}”, " + (f"seed {first}" if first == last else f"seeds {first} to {last}")
        if prompt in request.repeated:
            text += "; given more than once, generated once"
        room, rest = studio.unread(prompt)
        if rest:
            text += f"; the model reads {room} tokens and ignores the end: “{rest}”"
        rows.append(Markup("<li>{}.</li>").format(text))
    text = f"By {studio.name}, the dial at {request.strength:g}. In this order:"
    return Markup("<p>{}</p><ol>{}</ol>").format(text, Markup("").join(rows))


def status_text(text: str) -> Markup:
    return Markup('<p role="status">{}</p>').format(text)


def memory_text(session: Session) -> Markup:
    """What is remembered."""
    count, size = len(session.window), session.window.size
    images = "1 image is" if count == 1 else f"{count or 'No'} images are"
    text = f"{images} remembered, of {size} at most."
    if session.liked:
        text += f" Marked as examples: {len(session.liked)}."
    if session.disliked:
        text += f" Marked to avoid: {session.disliked}; each counts twice more."
    return Markup("<p>{}</p>").format(text)
