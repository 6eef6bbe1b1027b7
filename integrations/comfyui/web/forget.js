// Adds the button "forget" to Diverse Batch, which empties the memory that the node names.
const { app } = window.comfyAPI.app;

app.registerExtension({
  name: "VendiGuidance.Forget",
  nodeCreated(node) {
    if (node.comfyClass !== "VendiGuidanceDiverseBatch") return;
    const value = (name) => node.widgets.find((widget) => widget.name === name).value;
    const button = node.addWidget("button", "forget", null, () =>
      window.comfyAPI.api.api.fetchApi("/vendi_guidance/forget", {
        method: "POST",
        body: JSON.stringify({ memory: value("memory"), name: value("memory_name"), node: String(node.id) }),
      }),
    );
    button.serialize = false; // not an input of the node
  },
});
