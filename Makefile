# Everything happens in .venv, made on first use and again only when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

export FEDPN_DATA ?= $(wildcard ../shared/data)

.PHONY: run test browser package lint format lock bench soak fuzz mutants clean

run: $(READY)
	rm -rf runs/digits
	$(BIN)/fedpn run --out runs/digits

test: lint browser package
	$(BIN)/pytest -n 2 --cov --cov-report=term

# The page is tested in a real browser; without one, and without the right to install it, that is skipped.
browser:
	@command -v chromium >/dev/null || { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium >/dev/null; } || true

# What people get: the sdist, the wheel built from it, an empty environment, and the main job in it.
package: $(READY)
	rm -rf build dist .package
	$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	$(PYTHON) -m venv .package
	.package/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	.package/bin/pip install --quiet --disable-pip-version-check dist/fedpn-*.whl
	cd .package && bin/fedpn run --out run && bin/fedpn export run --client 0 --out folder
	rm -rf .package

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
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .package runs build dist src/*.egg-info

# All that development needs, by version and hash, but PyTorch, of which the CPU version is taken.
lock: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	echo 'torch ; python_version < "3"' > .no-torch
	$(BIN)/uv pip compile pyproject.toml --extra dev --generate-hashes --python-version 3.11 \
		--override .no-torch --no-header --no-annotate --quiet --output-file requirements-dev.lock
	rm .no-torch

# PyTorch first, at the CPU version: a looser request brings gigabytes of CUDA.
$(READY): pyproject.toml requirements-dev.lock
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@
