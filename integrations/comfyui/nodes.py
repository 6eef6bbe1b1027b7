"""The nodes: what a user of ComfyUI sees and sets."""

from pathlib import Path
from secrets import token_hex
from typing import Any

import folder_paths
from comfy.patcher_extension import WrappersMP
from comfy_api.latest import ComfyExtension, io, ui

from vendi_guidance.guidance.objectives import OBJECTIVES
from vendi_guidance.guidance.settings import STRENGTH, Rounds

from .remembering import KINDS, Remembering
from .sampling import DiverseSampling
from .schedule import KEY, keep_schedule
from .scoring import score


class DiverseBatch(io.ComfyNode):
    """Makes the images that a model generates differ from one another."""

    @classmethod
    def define_schema(cls) -> Any:
        return io.Schema(
            node_id="VendiGuidanceDiverseBatch",
            display_name="Diverse Batch",
            category="sampling/diversity",
            description="Makes the images of a batch differ from one another, and from those "
            "remembered, where their prompts are similar. Connect it last before the sampler.",
            inputs=[
                io.Model.Input("model"),
                io.Float.Input(
                    "diversity",
                    default=STRENGTH,
                    min=0.0,
                    max=1.0,
                    step=0.05,
                    tooltip="0 changes nothing, 1 gives the most variety.",
                ),
                io.Combo.Input(
                    "objective",
                    options=list(OBJECTIVES),
                    default=Rounds.objective,
                    tooltip="The score to raise. The conditional ones compare images of similar "
                    "prompts, the others all images.",
                ),
                io.Combo.Input(
                    "memory",
                    options=list(KINDS),
                    default=KINDS[0],
                    tooltip="What else to differ from. With 'this batch', the same seed generates "
                    "the same images again; otherwise new ones.",
                ),
                io.String.Input(
                    "memory_name",
                    default="default",
                    tooltip="Of a session's or a file's memory. Another name is an empty memory.",
                ),
                io.Model.Input(
                    "undistilled",
                    optional=True,
                    tooltip="For a model distilled to few steps (Lightning, Turbo, ...): the model "
                    "before the LoRA, or the one it was distilled from, which then decides what "
                    "images differ in.",
                ),
            ],
            outputs=[io.Model.Output()],
        )

    @classmethod
    def validate_inputs(
        cls, diversity: float = STRENGTH, memory: str = KINDS[0], memory_name: str = "default"
    ) -> bool | str:
        """True, or what is wrong. ComfyUI asks before it runs a workflow, and leaves out inputs
        that are linked, whose values are not known yet."""
        if not 0 <= diversity <= 1:
            return f"diversity must be between 0 and 1, got {diversity}"
        try:
            Remembering(memory if diversity else KINDS[0], memory_name, Path())
        except ValueError as error:
            return str(error)
        return True

    @classmethod
    def fingerprint_inputs(
        cls, memory: str = "", diversity: float = STRENGTH, **others: Any
    ) -> str:
        """Another value each time where images depend on those remembered, so that ComfyUI does
        not answer with the images of the last run."""
        return "" if memory == KINDS[0] or diversity == 0 else token_hex()

    @classmethod
    def execute(
        cls,
        model: Any,
        diversity: float,
        objective: str,
        memory: str,
        memory_name: str,
        undistilled: Any = None,
    ) -> Any:
        wrong = cls.validate_inputs(diversity, memory, memory_name)
        if wrong is not True:  # of linked inputs
            raise ValueError(wrong)
        patched = model.clone()
        for kind in (WrappersMP.OUTER_SAMPLE, WrappersMP.SAMPLER_SAMPLE):
            patched.remove_wrappers_with_key(kind, KEY)  # the last node counts
        if diversity > 0:
            settings = Rounds(strength=diversity, objective=objective)
            folder = Path(folder_paths.get_user_directory(), KEY)
            remembering = Remembering(memory, memory_name, folder)
            wrapper = DiverseSampling(settings, remembering, undistilled)
            patched.add_wrapper_with_key(WrappersMP.OUTER_SAMPLE, KEY, keep_schedule)
            patched.add_wrapper_with_key(WrappersMP.SAMPLER_SAMPLE, KEY, wrapper)
        return io.NodeOutput(patched)


class DiversityScore(io.ComfyNode):
    """Says how many different images a batch holds."""

    @classmethod
    def define_schema(cls) -> Any:
        return io.Schema(
            node_id="VendiGuidanceDiversityScore",
            display_name="Diversity Score",
            category="image/analysis",
            description="The effective number of different images in a batch (Vendi score), and "
            "their similarities: white for equal images, black for different ones.",
            inputs=[
                io.Image.Input("images"),
                io.ClipVision.Input(
                    "clip_vision",
                    optional=True,
                    tooltip="Compares what images show. Without it, colours are compared.",
                ),
            ],
            outputs=[io.String.Output("text"), io.Image.Output("similarities")],
            is_output_node=True,
        )

    @classmethod
    def execute(cls, images: Any, clip_vision: Any = None) -> Any:
        images = images.nan_to_num()  # as they are saved: black where a VAE overflowed
        embeddings = None
        if clip_vision is not None:
            embeddings = clip_vision.encode_image(images)["image_embeds"]
        text, picture = score(images, embeddings)
        shown = {**ui.PreviewImage(picture, cls=cls).as_dict(), "text": (text,)}
        return io.NodeOutput(text, picture, ui=shown)


class VendiGuidanceExtension(ComfyExtension):
    """All nodes of this folder."""

    async def get_node_list(self) -> list[Any]:
        return [DiverseBatch, DiversityScore]
