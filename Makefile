# `make run` needs the runtime's packages alone, `make test` all of them; both are locked by hash, but
# PyTorch, which comes first and may be another build. An environment is brought up to date when its lock changes.
PYTHON ?= python3
BIN := .venv/bin
RUNTIME := .venv/.runtime
READY := .venv/.ready
OVERLAY := .overlay/.ready
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
KERNELS := $(wildcard src/fedpn/nn/kernels/*.[ch]) src/fedpn/nn/kernels/recipe.py
export FEDPN_DATA ?= $(wildcard ../shared/data)
export FEDPN_TABLES ?= $(wildcard ../shared/tables)

# uv where it is found, or where pip can bring it; else pip: $(call install,FOLDER OF A PYTHON) WHAT
install = uv=$$(command -v uv || command -v $(BIN)/uv || true); \
	$${uv:-$(1)/python -m} pip install $${uv:+--python $(1)/python} --quiet

.PHONY: run test coverage browser wheel package docs reference lint format lock bench soak fuzz mutants clean

run: $(RUNTIME)
	rm -rf runs/digits
	$(BIN)/fedpn run --out runs/digits

# The service is tested at the versions that `pip install 'fedpn[serve]'` brings, which Flower's are older than.
test: lint browser package docs $(OVERLAY)
	$(BIN)/pytest -n 2 --dist worksteal --ignore tests/service
	PYTHONPATH=.overlay $(BIN)/pytest -n 2 --dist worksteal tests/service

# The same, and which lines no test comes to; that takes half as long again.
coverage: browser $(READY)
	$(BIN)/pytest -n 2 --dist worksteal --cov --cov-report=term

# The page is tested in a real browser; without one, and without the right to install it, that is skipped.
browser:
	@command -v chromium >/dev/null || { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium >/dev/null; } || true

# What people get: the sdist, a wheel for every machine, and one with the kernels for this platform, on Linux by
# a tag that says the oldest glibc it works with. `cibuildwheel` makes those of all platforms (docs/releasing.md).
wheel: export SOURCE_DATE_EPOCH = $(or $(shell git log -1 --format=%ct 2>/dev/null),1500000000)
wheel: $(READY)
	rm -rf build dist
	FEDPN_PREBUILT=no $(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir build/here dist/fedpn-*.tar.gz
	case "$$(ls build/here)" in \
		*-any.whl) echo "no C compiler: no wheel with kernels" ;; \
		*-linux_*) PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/here/fedpn-*.whl ;; \
		*) cp build/here/fedpn-*.whl dist ;; \
	esac

# The wheel in an empty environment: the main job with the runtime's packages alone, then the service.
package: wheel
	rm -rf .package
	$(PYTHON) -m venv .package
	.package/bin/pip install --quiet --disable-pip-version-check --no-compile torch==2.13.0
	$(call install,.package/bin) "$$(ls dist/fedpn-*.whl | tail -1)"
	cd .package && bin/python ../tests/main_job.py run
	$(call install,.package/bin) "$$(ls dist/fedpn-*.whl | tail -1)[serve]"
	cd .package && bin/python ../tests/main_job.py serve
	rm -rf .package

# The documentation as a site, which needs no network: open site/index.html.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The pages of the documentation that are made of the code; a test tells when they are stale.
reference: $(READY)
	cd docs && ../$(BIN)/python -m making

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(call install,$(BIN)) pyro-ppl
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

# MLflow brings thirty packages, so that its test is by itself.
trackers: $(READY)
	$(call install,$(BIN)) 'mlflow-skinny>=2.10,<4'
	$(BIN)/pytest tests/runs -k "mlflow or tensorboard"

clean:
	rm -rf .venv .overlay .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .package runs build dist site

# The locks hold for all platforms and Pythons. The runtime's follows the development's, so that one is part of the other.
EXTRAS := $(foreach extra,data plots parquet dicom flower onnx serve tensorboard,--extra $(extra))
SHARED = $(shell sed -n 's/ *\\\\$$//; s/==.*//p' requirements.lock)
COMPILE = $$(command -v uv || echo $(BIN)/uv) pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--override .no-torch --no-header --no-annotate --quiet --upgrade
lock: $(READY)
	echo 'torch ; python_version < "3"' > .no-torch
	$(COMPILE) $(EXTRAS) --group dev --output-file requirements-dev.lock
	$(COMPILE) --constraints requirements-dev.lock --output-file requirements.lock
	$(COMPILE) --extra serve --output-file requirements-serve.lock $(foreach p,$(SHARED),--no-emit-package $(p))
	rm .no-torch

# PyTorch first, at the version that is tested. For Linux pip may bring CUDA's libraries with it, gigabytes that are not
# used here; pytorch.org tells how to have the CPU build, and one that is in .venv already is kept.
$(RUNTIME): pyproject.toml hatch_build.py requirements.lock $(KERNELS)
	test -d .venv || $(PYTHON) -m venv .venv
	$(PIP) install --no-compile torch==2.13.0
	command -v uv >/dev/null || $(PIP) install uv || true
	$(call install,$(BIN)) --no-deps --require-hashes -r requirements.lock  # locks are whole: nothing is resolved
	$(call install,$(BIN)) --no-deps --editable .
	touch $@

$(READY): $(RUNTIME) requirements-dev.lock
	$(call install,$(BIN)) --no-deps --require-hashes -r requirements-dev.lock
	touch $@

$(OVERLAY): $(READY) requirements-serve.lock
	rm -rf .overlay
	$(call install,$(BIN)) --no-deps --require-hashes --target .overlay -r requirements-serve.lock
	touch $@
