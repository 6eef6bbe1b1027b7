# `make demo`, `make docs` and `make test` do all their own set-up in .venv.
PYTHON ?= python3
BIN := .venv/bin
DEMO := out/demo
SEED := 0
GENERATE := $(BIN)/vendi-guidance generate --batch-size 16 --steps 16 --seed $(SEED) --overwrite
EMOJI := $(GENERATE) --guidance-scale 5
FACES := $(GENERATE) --guidance-scale 4 --model assets/demo-faces
EVALUATE := $(BIN)/vendi-guidance evaluate --overwrite
OPEN := assets/prompts/demo.txt --images-per-prompt 16
NAMED := assets/prompts/named.txt --images-per-prompt 8

.PHONY: demo docs test quick test-portable setup clean

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable

setup: .venv/.complete

.venv/.complete: .venv/.installed
	$(INSTALL) ".[dev]"
	touch $@

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(INSTALL) .
	touch $@

# looks, on prompts that leave the look open; named kept, on prompts that name some of it; and five
# of the prompts of another model, of larger images
demo: .venv/.installed
	$(EMOJI) $(OPEN) --diversity 0 --output $(DEMO)/open-without
	$(EMOJI) $(OPEN) --output $(DEMO)/open-with
	$(EMOJI) $(NAMED) --diversity 0 --output $(DEMO)/named-without
	$(EMOJI) $(NAMED) --output $(DEMO)/named-with
	awk 'NR % 6 == 1' assets/prompts/faces.txt > $(DEMO)/faces.txt
	$(FACES) $(DEMO)/faces.txt --images-per-prompt 16 --diversity 0 --output $(DEMO)/faces-without
	$(FACES) $(DEMO)/faces.txt --images-per-prompt 16 --output $(DEMO)/faces-with
	$(EVALUATE) $(DEMO)/faces-without $(DEMO)/faces-with --probe assets/demo-faces-probe \
		--prompt-embedder sdxl:assets/demo-faces --output $(DEMO)/faces
	$(EVALUATE) $(DEMO)/named-without $(DEMO)/named-with --output $(DEMO)/named
	$(EVALUATE) $(DEMO)/open-without $(DEMO)/open-with --output $(DEMO)/open

CHECKS = $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile

test: setup
	$(CHECKS)
	$(PYTEST)

# what to run after each change: under a minute on two cores
quick: setup
	$(CHECKS)
	$(PYTEST) -m "not slow" tests/kernels tests/scores tests/guidance

NUMERIC := tests/kernels tests/scores tests/guidance/test_objectives.py \
	tests/guidance/test_window.py tests/guidance/test_spaces.py

# The numeric tests with the roundings of other processors and of two threads. AMD's ignore the
# first setting of the third run; the second is for them.
test-portable: setup
	@failed=0; for settings in ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 \
		"MKL_ENABLE_INSTRUCTIONS=SSE4_2 MKL_CBWR=COMPATIBLE" OMP_NUM_THREADS=1 OMP_NUM_THREADS=2; do \
		workers=auto; test "$$settings" != OMP_NUM_THREADS=2 || workers=0; \
		found=$$(env OMP_NUM_THREADS=1 $$settings $(BIN)/python -m pytest -m "not slow" \
			--numprocesses $$workers $(NUMERIC) 2>&1) || { failed=1; echo "$$found"; }; \
		echo "$$settings: $$(echo "$$found" | tail -n 1)"; \
	done; exit $$failed

docs: setup
	$(BIN)/python -m scripts.docs.site
	$(BIN)/python -m zensical build --clean --strict

clean:
	rm -rf .venv out build dist *.egg-info
