# Two commands do everything on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check -q
DEMO = examples/digits.py:Digits --space examples/digits.toml --max-steps 40 --seed 1 --checkpoints-at-most 100MB

.PHONY: demo test test-heavy agents clean

demo: $(VENV)/demo ## tune a real model for 30 seconds and show what the money bought
	@rm -rf out/demo && mkdir -p out/demo
	@$(BIN)/shoestring run $(DEMO) --budget 30s --store out/demo/demo.db
	@echo
	@$(BIN)/shoestring status --store out/demo/demo.db

test: $(VENV)/test ## everything that must hold: lint, types, tests, docs, examples
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist worksteal

test-heavy: ## the same inside other people's frameworks, each group in an environment of its own (.venvs/)
	$(PYTHON) tools/heavy.py

$(VENV)/demo: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PIP) install -e . --group demo
	@touch $@

$(VENV)/test: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PIP) install -e . --group test --group lint --group bench
	@touch $@ $(VENV)/demo

agents: $(VENV)/agents ## PyTorch and simulated robots, for the benchmarks that train networks

$(VENV)/agents: $(VENV)/test benchmarks/constraints.txt
	@$(PIP) install --group agents -c benchmarks/constraints.txt
	@touch $@

clean:
	rm -rf $(VENV) .venvs out .mypy_cache .ruff_cache .pytest_cache .hypothesis
