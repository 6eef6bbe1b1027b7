# `make demo` and `make test` do all their own set-up in .venv.
PYTHON ?= python3
BIN := .venv/bin
DEMO := out/demo
# The demo's settings: the best found with the latent-space step alone (docs/demo-settings.md).
GENERATE := $(BIN)/python scripts/generate.py assets/prompts/demo.txt \
	--images-per-prompt 16 --batch-size 8 --steps 25 --guidance-scale 3 --seed 0 --overwrite

.PHONY: demo test setup clean

setup: .venv/.complete

.venv/.complete: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

demo: setup
	$(GENERATE) --diversity-scale 0 --output $(DEMO)/without
	$(GENERATE) --diversity-scale 0.1 --diversity-every 5 --output $(DEMO)/with
	$(BIN)/python scripts/evaluate.py $(DEMO)/without $(DEMO)/with --output $(DEMO)

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

clean:
	rm -rf .venv out build *.egg-info
