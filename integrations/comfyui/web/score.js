// Shows the text of a Diversity Score on its node: ComfyUI's page shows a node's images, but not its text.
import { app } from "../../scripts/app.js";
import { ComfyWidgets } from "../../scripts/widgets.js";

app.registerExtension({
  name: "VendiGuidance.DiversityScore",
  nodeCreated(node) {
    if (node.comfyClass !== "VendiGuidanceDiversityScore") return;
    const { widget } = ComfyWidgets.STRING(node, "score", ["STRING", { multiline: true }], app);
    widget.inputEl.readOnly = true;
    widget.serializeValue = () => undefined; // not an input of the node
    widget.options.serialize = false;
    widget.options.getMaxHeight = () => 60; // leave the rest to the image
    const { onExecuted } = node;
    node.onExecuted = function (output) {
      onExecuted?.apply(this, arguments);
      widget.value = output.text.join("\n");
    };
  },
});
