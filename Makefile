# `make serve` and `make test` do all of their own set-up; `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help serve test test-all lint format bench constraints clean

# Empty: what the environment, penstock.yaml or the defaults say (127.0.0.1:8000, the default model).
MODEL ?=
HOST ?=
PORT ?=
ARGS ?=

PYTHON_BIN := .venv/bin/python
ENGINE := .venv/.installed-engine
DEV := .venv/.installed-dev
# Builds what is missing or older than its C sources. Without a compiler it says so, and the engine does without.
KERNELS := $(PYTHON_BIN) src/penstock/engine/native/build.py >/dev/null || true
# Programs that tests run, and the Debian packages that bring them.
PACKAGES := redis-server promtool=prometheus chromium cc=gcc,libc6-dev
export PYTHONUNBUFFERED := 1

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

serve: $(ENGINE) ## Serve a model: make serve [MODEL=...] [HOST=...] [PORT=...] [ARGS="--max-model-len 4K"]
	@$(KERNELS)
	@$(PYTHON_BIN) -m penstock pull "$(or $(MODEL),$(PENSTOCK_MODEL),default)"
	@exec $(PYTHON_BIN) -m penstock serve $(if $(MODEL),"$(MODEL)") \
	  $(if $(HOST),--host "$(HOST)") $(if $(PORT),--port "$(PORT)") $(ARGS)

test: lint ## Check style, types and import contracts, then run the tests (PYTEST="-k name" narrows)
	@tools/packages $(PACKAGES)
	@$(KERNELS)
	$(PYTHON_BIN) -m penstock pull default
	$(PYTHON_BIN) -m penstock pull all-minilm-l6-v2
	tools/tests $(PYTHON_BIN) $(PYTEST)

test-all: lint ## The same, with the slow tests and those against other systems
	@tools/packages $(PACKAGES)
	@$(KERNELS)
	$(PYTHON_BIN) -m penstock pull default
	$(PYTHON_BIN) -m penstock pull all-minilm-l6-v2
	$(PYTHON_BIN) -m pytest -m "" $(PYTEST)

lint: $(DEV) ## Style, types and import contracts only
	$(PYTHON_BIN) -m ruff check .
	$(PYTHON_BIN) -m ruff format --check .
	$(PYTHON_BIN) -m mypy
	.venv/bin/lint-imports

format: $(DEV) ## Rewrite the code in the project's style
	$(PYTHON_BIN) -m ruff check --fix .
	$(PYTHON_BIN) -m ruff format .

bench: $(ENGINE) ## Continuous against static batching on the default model (ARGS="--workload W2")
	@$(KERNELS)
	@$(PYTHON_BIN) -m penstock bench offline $(if $(MODEL),"$(MODEL)") --compare-static $(ARGS)

constraints: $(DEV) ## Pin what is installed now in constraints.txt
	@{ sed '/^[^#]/,$$d' constraints.txt; \
	   $(PYTHON_BIN) -m pip freeze --all --exclude-editable --exclude pip \
	   | sed 's/+cpu$$//'; } > constraints.txt.new && mv constraints.txt.new constraints.txt

clean: ## Remove the environments, caches and builds (the model cache stays)
	rm -rf .venv .venv-clients build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache \
	  src/penstock/engine/native/lib

# One environment, two sizes: what serves, and what also tests.
$(ENGINE): pyproject.toml constraints.txt hatch_build.py
	@tools/environment engine,hub
	@touch $@

$(DEV): pyproject.toml constraints.txt hatch_build.py
	@tools/environment engine,hub,dev
	@touch $@ $(ENGINE)
