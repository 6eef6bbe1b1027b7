"""The page: its parts and what they do."""

from pathlib import Path
from typing import Any

import gradio as gr

from vendi_guidance.app.actions import Actions
from vendi_guidance.app.request import (
    LARGEST_SCALE,
    LONGEST_PROMPT,
    MOST_PICTURES,
    MOST_PROMPTS,
    MOST_STEPS,
)
from vendi_guidance.guidance.settings import STRENGTH
from vendi_guidance.runs.setup import RunOptions

STYLE = Path(__file__).with_name("style.css")
PICTURES = 8  # of a prompt, unless the visitor says otherwise
MODEL = "model"
"""What uses the model waits in one line."""

INTRO = """# Vendi Guidance

The same prompts and seeds, drawn **without** guidance and **with** it. Guidance remembers what it
has drawn, and makes each new picture of a prompt differ from that."""

CACHE = (600, 86_400)
"""Every so many seconds, files that were shown are deleted once they are so old."""


def theme() -> gr.themes.Base:
    """Fonts of the visitor's own system: nothing is fetched from elsewhere."""
    return gr.themes.Default(
        primary_hue="blue",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    ).set(
        # the theme's own contrasts are too low to read
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
    )


def build(actions: Actions, options: RunOptions, examples: str) -> gr.Blocks:
    """The page for a model.

    Args:
        options: the model's defaults.
        examples: the prompts at first.
    """
    with gr.Blocks(title="Vendi Guidance", analytics_enabled=False, delete_cache=CACHE) as page:
        gr.Markdown(INTRO)
        with gr.Row():
            with gr.Column(scale=3, min_width=300):
                prompts = gr.Textbox(
                    examples,
                    label="Prompts, one a line",
                    info=f"At most {MOST_PROMPTS}, of {LONGEST_PROMPT} characters.",
                    lines=5,
                    max_lines=10,
                    elem_id="prompts",
                )
            with gr.Column(scale=2, min_width=300):
                strength = gr.Slider(
                    0,
                    1,
                    STRENGTH,
                    step=0.05,
                    label="The dial",
                    info="0 is the model as it is, 1 the most variety.",
                    elem_id="dial",
                )
                with gr.Row():
                    pictures = gr.Number(
                        PICTURES,
                        precision=0,
                        label=f"Pictures per prompt, 1 to {MOST_PICTURES}",
                        min_width=120,
                        elem_id="pictures",
                    )
                    seed = gr.Number(
                        0, precision=0, label="Seed of the first", min_width=120, elem_id="seed"
                    )
        expert = expert_settings(options)
        with gr.Row():
            draw = gr.Button("Draw", variant="primary", elem_id="draw")
            stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="stop")
        status = gr.HTML(elem_id="status", min_height=60)
        with gr.Row():
            shown = [gallery(f"{name} guidance") for name in ("Without", "With")]
        with gr.Row():
            more = gr.Button("More like this", elem_id="more")
            less = gr.Button("Not like this", elem_id="less")
        scores = gr.HTML(elem_id="scores")
        with gr.Row():
            with gr.Column(scale=3, min_width=300):
                gr.Markdown("## Memory")
                memory = gr.HTML(elem_id="memory")
                with gr.Row():
                    forget = gr.Button("Forget", elem_id="forget", min_width=80)
                    save = gr.Button("Save", elem_id="save", min_width=80)
                    load = gr.UploadButton(
                        "Load", file_types=[".safetensors"], elem_id="load", min_width=80
                    )
            with gr.Column(scale=2, min_width=300):
                gr.Markdown("## Take away")
                gr.HTML(
                    "<p>One zip file: an imagefolder of each kind, and the report.</p>",
                    elem_id="take",
                )
                get = gr.Button("Download pictures and report", elem_id="get")
        files = [
            gr.DownloadButton(visible="hidden", elem_id=f"{name}-file")
            for name in ("memory", "pictures")
        ]

        inputs = [prompts, pictures, strength, seed, *expert]
        outputs = [*shown, status, scores, memory]
        alone: dict[str, Any] = {"concurrency_id": MODEL, "concurrency_limit": 1}
        at_once: dict[str, Any] = {"queue": False, "show_progress": "hidden"}
        page.load(actions.open, None, memory, **at_once)
        drawing = draw.click(actions.begin, None, [draw, stop], **at_once).success(
            actions.draw, inputs, outputs, show_progress_on=status, **alone
        )
        drawing.then(actions.end, None, [draw, stop], **at_once)
        stop.click(actions.stop, **at_once)
        for one, choose in zip(shown, (actions.choose_without, actions.choose_with), strict=True):
            one.select(choose, None, status, **at_once)
        more.click(actions.more_like_it, None, [status, memory], **at_once)
        less.click(actions.not_like_it, None, [status, memory], **at_once)
        forget.click(actions.forget, None, [status, memory], **at_once)
        load.upload(actions.load, load, [status, memory], **at_once)
        for button, make, file in zip(
            (save, get), (actions.save, actions.pack), files, strict=True
        ):
            made = button.click(make, None, file, show_progress_on=status)
            made.success(None, js=f"() => document.querySelector('#{file.elem_id}').click()")
        page.unload(actions.close)
    return page


def expert_settings(options: RunOptions) -> list[gr.Number]:
    """The fields that few need, folded away."""
    scale = options.guidance_scale
    with gr.Accordion("Expert settings", open=False, elem_id="expert"), gr.Row():
        return [
            gr.Number(options.steps, precision=0, label=f"Steps, at most {MOST_STEPS}"),
            gr.Number(
                scale,
                label=f"Guidance scale (CFG), at most {LARGEST_SCALE:g}",
                visible=scale is not None,
            ),
            gr.Number(
                options.batch_size, precision=0, label=f"Pictures at a time, 1 to {MOST_PICTURES}"
            ),
        ]


def gallery(label: str) -> gr.Gallery:
    return gr.Gallery(
        label=label,
        columns=PICTURES,
        fit_columns=False,
        object_fit="contain",
        height="auto",
        interactive=False,
        min_width=300,
        buttons=["fullscreen"],
        elem_id=label.split()[0].lower(),
        elem_classes="pictures",
    )
