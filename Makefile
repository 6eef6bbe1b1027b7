# `make demo`, `make docs` and `make test` do all their own set-up in .venv.
PYTHON ?= python3
BIN := .venv/bin
DEMO := out/demo
SEED := 0
# every third prompt; 1 takes all
EVERY := 3
GENERATE := $(BIN)/vendi-guidance generate --batch-size 16 --steps 16 --guidance-scale 5 \
	--seed $(SEED) --overwrite
PHOTOS := $(GENERATE) --model assets/demo-photos --lora assets/demo-photos-tuned-lora
OPEN := --images-per-prompt 16 $(DEMO)
NAMED := --images-per-prompt 8 $(DEMO)
EVALUATE := $(BIN)/vendi-guidance evaluate

.PHONY: demo docs test quick test-portable setup clean

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable

setup: .venv/.complete

.venv/.complete: .venv/.installed
	$(INSTALL) ".[dev]"
	touch $@

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(INSTALL) ".[lora]"
	touch $@

# photographs of a model tuned on a taste, then emoji: 16 images of prompts that leave the look open,
# for looks and realism, and 8 of prompts that name some of it, for what is kept
demo: .venv/.installed
	mkdir -p $(DEMO)
	for prompts in photos photos-named demo named; do \
		awk 'NR % $(EVERY) == 0' assets/prompts/$$prompts.txt > $(DEMO)/$$prompts.txt || exit; \
	done
	$(PHOTOS) $(OPEN)/photos.txt --diversity 0 --output $(DEMO)/photos-open-without
	$(PHOTOS) $(OPEN)/photos.txt --output $(DEMO)/photos-open-with
	$(PHOTOS) $(NAMED)/photos-named.txt --diversity 0 --output $(DEMO)/photos-named-without
	$(PHOTOS) $(NAMED)/photos-named.txt --output $(DEMO)/photos-named-with
	$(GENERATE) $(OPEN)/demo.txt --diversity 0 --output $(DEMO)/open-without
	$(GENERATE) $(OPEN)/demo.txt --output $(DEMO)/open-with
	$(GENERATE) $(NAMED)/named.txt --diversity 0 --output $(DEMO)/named-without
	$(GENERATE) $(NAMED)/named.txt --output $(DEMO)/named-with
	for runs in named open photos-named photos-open; do \
		$(EVALUATE) $(DEMO)/$$runs-without $(DEMO)/$$runs-with --output $(DEMO)/$$runs || exit; \
	done

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
