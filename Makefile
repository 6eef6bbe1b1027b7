# `make demo`, `make docs` and `make test` do all their own set-up in .venv.
PYTHON ?= python3
BIN := .venv/bin
DEMO := out/demo
SEED := 0
GENERATE := $(BIN)/vendi-guidance generate --batch-size 16 --steps 16 --guidance-scale 5 \
	--seed $(SEED) --overwrite
OPEN := assets/prompts/demo.txt --images-per-prompt 16
NAMED := assets/prompts/named.txt --images-per-prompt 8

.PHONY: demo docs test setup clean

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable

setup: .venv/.complete

.venv/.complete: .venv/.installed
	$(INSTALL) ".[dev]"
	touch $@

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(INSTALL) .
	touch $@

# looks, on prompts that leave the look open; named kept, on prompts that name some of it
demo: .venv/.installed
	$(GENERATE) $(OPEN) --diversity 0 --output $(DEMO)/open-without
	$(GENERATE) $(OPEN) --output $(DEMO)/open-with
	$(GENERATE) $(NAMED) --diversity 0 --output $(DEMO)/named-without
	$(GENERATE) $(NAMED) --output $(DEMO)/named-with
	$(BIN)/vendi-guidance evaluate $(DEMO)/named-without $(DEMO)/named-with --output $(DEMO)/named --overwrite
	$(BIN)/vendi-guidance evaluate $(DEMO)/open-without $(DEMO)/open-with --output $(DEMO)/open --overwrite

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile

docs: setup
	$(BIN)/python -m mkdocs build --clean

clean:
	rm -rf .venv out build dist *.egg-info
