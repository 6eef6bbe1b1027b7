"""The diffusers plug-in."""
