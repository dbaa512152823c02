# Everything happens in .venv, made on first use and again only when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Kernels are built ahead for this kind of machine alone.
PREBUILT := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),--prebuilt)
export FEDPN_DATA ?= $(wildcard ../shared/data)

.PHONY: run test coverage browser wheel package docs lint format lock bench soak fuzz mutants clean

run: $(READY)
	rm -rf runs/digits
	$(BIN)/fedpn run --out runs/digits

test: lint browser package docs
	$(BIN)/pytest -n 2 --dist worksteal

# The same, and which lines no test comes to; that takes half as long again.
coverage: browser $(READY)
	$(BIN)/pytest -n 2 --dist worksteal --cov --cov-report=term

# The page is tested in a real browser; without one, and without the right to install it, that is skipped.
browser:
	@command -v chromium >/dev/null || { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium >/dev/null; } || true

# What people get: the sdist, a wheel for every machine, and here, on Linux and x86-64, one with the
# kernels built ahead, whose tag tells the oldest glibc that it works with. pip takes the one that suits.
wheel: export SOURCE_DATE_EPOCH = $(or $(shell git log -1 --format=%ct 2>/dev/null),1500000000)
wheel: $(READY)
	rm -rf build dist
	$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
ifneq ($(PREBUILT),)
	FEDPN_PREBUILT=yes $(BIN)/python -m build --no-isolation --wheel --outdir build/here . >/dev/null
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/here/fedpn-*.whl
endif

# The wheel in an empty environment: the main job, predict, export, an answer over HTTP.
package: wheel
	rm -rf .package
	$(PYTHON) -m venv .package
	.package/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	.package/bin/pip install --quiet --disable-pip-version-check "$$(ls dist/fedpn-*.whl | tail -1)[serve]"
	cd .package && bin/python ../tests/main_job.py $(PREBUILT)
	rm -rf .package

# The documentation as a site, which needs no network: open site/index.html.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check pyro-ppl
	$(BIN)/python benchmarks/round.py
	$(BIN)/python benchmarks/clients.py
	$(BIN)/python benchmarks/stages.py
	$(BIN)/python benchmarks/serve.py

# Sixty kills at random moments and twenty full disks must end in the same bits.
soak: $(READY)
	FEDPN_KILLS=20 FEDPN_FULL=20 $(BIN)/pytest tests/runs/test_soak.py

# Ever new damage to what is read from outside, ten minutes a property: SECONDS=60 is shorter.
SECONDS ?= 600
fuzz: $(READY)
	FEDPN_FUZZ_SECONDS=$(SECONDS) $(BIN)/pytest tests/fuzz -n 2 --showlocals

# Small mistakes in the modules that decide, one at a time: do tests notice? Half an hour, resumable.
mutants: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/mutants

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .package runs build dist site src/*.egg-info

# All that development needs, by version and hash, but PyTorch, which comes first and may be another build.
lock: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	echo 'torch ; python_version < "3"' > .no-torch
	$(BIN)/uv pip compile pyproject.toml --extra dev --generate-hashes --python-version 3.11 \
		--override .no-torch --no-header --no-annotate --quiet --output-file requirements-dev.lock
	rm .no-torch

# PyTorch first, at the version that is tested. For Linux pip may bring CUDA's libraries with it, gigabytes that are not
# used here; pytorch.org tells how to have the CPU build, and one that is in .venv already is kept.
$(READY): pyproject.toml requirements-dev.lock
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@
