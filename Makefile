# `make demo` and `make test` do all their own set-up in .venv.
PYTHON ?= python3
BIN := .venv/bin
DEMO := out/demo
SEED := 0
GENERATE := $(BIN)/vendi-guidance generate assets/prompts/demo.txt \
	--images-per-prompt 16 --batch-size 16 --steps 16 --guidance-scale 5 --seed $(SEED) --overwrite

.PHONY: demo test setup clean

setup: .venv/.complete

.venv/.complete: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

demo: setup
	$(GENERATE) --diversity-scale 0 --output $(DEMO)/without
	$(GENERATE) --diversity-preset varied --output $(DEMO)/with
	$(BIN)/vendi-guidance evaluate $(DEMO)/without $(DEMO)/with --output $(DEMO)

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile

clean:
	rm -rf .venv out build dist *.egg-info
