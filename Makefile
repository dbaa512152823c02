# Everything happens in .venv, made on first use and again only when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

export FEDPN_DATA ?= $(wildcard ../shared/data)

.PHONY: run test browser lint format bench soak clean

run: $(READY)
	rm -rf runs/digits
	$(BIN)/fedpn run --out runs/digits

test: lint browser
	$(BIN)/pytest -n 2 --cov --cov-report=term

# The page is tested in a real browser; without one, and without the right to install it, that is skipped.
browser:
	@command -v chromium >/dev/null || { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium >/dev/null; } || true

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

# Twenty kills at random moments, each resumed, must end in the same bits.
soak: $(READY)
	FEDPN_KILLS=20 $(BIN)/pytest tests/runs/test_pipeline.py -k kill_minus_nine

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage runs build dist src/*.egg-info

# PyTorch first, at the CPU version: a looser request brings gigabytes of CUDA.
$(READY): pyproject.toml
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@
