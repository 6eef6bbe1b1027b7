"""Features of images and prompts: embedders, encoders and a cache."""
