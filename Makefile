# Two commands matter: `make demo` and `make test`. Each sets up all that it needs. `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-warn-conflicts
BUILT  := pyproject.toml setup.py constraints.txt $(wildcard src/mmcache/*/*.c)

VLLM   := .venv-vllm

.PHONY: help setup demo demo-cluster test test-all vllm-venv test-vllm kubernetes lint types imports examples lab-assets bench docs clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "mmcache needs Python 3.11 or later: make PYTHON=python3.12 …"; exit 1; }
	.ci/setup $(PYTHON) $(VENV)

$(VENV)/.demo-ready: $(BUILT) requirements/demo.txt requirements/demo-assets.txt | $(BIN)/python
	$(PIP) -c constraints.txt -r requirements/demo.txt
	$(PIP) --no-deps -r requirements/demo-assets.txt
	touch $@

$(VENV)/.test-ready: $(VENV)/.demo-ready requirements/test.txt requirements/docs.txt requirements/lab-assets.txt
	$(PIP) -c constraints.txt -r requirements/test.txt -r requirements/docs.txt
	$(PIP) --no-deps -r requirements/lab-assets.txt
	touch $@

setup: $(VENV)/.test-ready  ## everything that development needs, into .venv

demo: $(VENV)/.demo-ready  ## the main job on real input: cold, cached, restarted
	$(BIN)/mmcache demo

demo-cluster: $(VENV)/.demo-ready  ## two hosts share one cache; a node of its cluster is killed
	$(BIN)/mmcache demo-cluster

lint: $(VENV)/.test-ready
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/.test-ready
	$(BIN)/mypy

imports: $(VENV)/.test-ready
	$(BIN)/lint-imports

examples: $(VENV)/.test-ready  ## run every example
	for example in examples/[0-9]*.py; do echo "$$example"; $(BIN)/python "$$example" || exit 1; done

PUBLIC := mmcache mmcache.settings mmcache.rows mmcache.rollout mmcache.snapshot mmcache.stats mmcache.explain \
	$(addprefix mmcache.model.,key block frame signature event errors clock) \
	$(addsuffix .base,$(addprefix mmcache.,tiers codecs policies admission ttl refs likeness calibration)) \
	$(addprefix mmcache.semantic.,meaning prompt settings alias stream report openai judge) \
	mmcache.tiers.valkey mmcache.tiers.valkey.editions mmcache.near.hamming mmcache.near.vectors mmcache.keys.ushash mmcache.retrieval mmcache.fused mmcache.keys.drift \
	$(addprefix mmcache.integrations.,llamaindex langchain haystack ragflow transformers) mmcache.server.config mmcache.telemetry mmcache.tracer \
	$(addprefix mmcache.testing.,clock frames strategies tier_contract codec_contract policy_contract decider_contracts)

docs: $(VENV)/.test-ready  ## the API reference, into build/docs
	$(BIN)/pdoc --output-directory build/docs $(PUBLIC)
	$(BIN)/python -c 'from mmcache.cli.app import build; print(build().generate_docs())' > build/docs/cli.md

test: lint types imports docs  ## everything that is quick: under 15 minutes on 2 cores
	$(BIN)/pytest -n 2 -m "not slow"

kubernetes: $(VENV)/.test-ready  ## a Kubernetes API server for the operator's tests, from Debian's source: once, as root, 10 minutes
	$(BIN)/python -m mmcache.lab.kubernetes

test-all: $(VENV)/.test-ready  ## adds what is slow or heavy: kill loops, real models, every lab table, Kubernetes
	$(BIN)/python -m mmcache.lab.kubernetes || echo "no Kubernetes here: tests of the operator on it are skipped" >&2
	$(BIN)/pytest -n 2 --dist loadfile -m slow

$(VLLM)/.ready: requirements/vllm.txt requirements/vllm-peers.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/vllm.txt
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchaudio torchcodec
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/vllm-peers.txt -e .
	touch $@

vllm-venv: $(VLLM)/.ready  ## an environment with vLLM for CPUs, 3.5 GB: .venv-vllm

test-vllm: $(VLLM)/.ready  ## the encoder-cache connector in real engines, and the Triton kernel in its interpreter
	$(VLLM)/bin/python -m pytest -W ignore tests/vllm tests/parity/test_placement_kernels.py

lab-assets: $(VENV)/.test-ready  ## fetches what some tables read: npm and Debian packages, by exact hash
	$(BIN)/python -m mmcache.lab.fetch

bench: lab-assets  ## fills docs/results
	$(BIN)/mmcache lab run keys blocks codec coldstart policies boundary ttl decay clock refs qos
	$(BIN)/mmcache lab run likeness semantic vqa ushash joint collisions drift
	$(BIN)/mmcache lab run signature faults cdc
	$(BIN)/mmcache lab run gateways vlm vllm
	$(BIN)/mmcache lab run telemetry-cost ebpf
	$(BIN)/mmcache lab run hotkeys graph lifetime prefetch warm placement plans
	$(BIN)/mmcache lab run bursts scale capacity
	$(BIN)/python -m mmcache.lab.faults_page docs/results > docs/reference/failure-modes.md
	$(BIN)/mmcache bench all
	$(BIN)/mmcache demo --results docs/results

clean:
	rm -rf $(VENV) $(VLLM) build dist .mypy_cache .ruff_cache .hypothesis
