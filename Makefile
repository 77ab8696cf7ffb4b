# Two commands do everything on a fresh machine: `make demo` and `make test`. `make help` lists the others.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check -q
DEMO_BUDGET ?= 30s
DEMO = examples/digits.py:Digits --space examples/digits.toml --max-steps 40 --seed 1 --checkpoints-at-most 100MB

.PHONY: demo test test-heavy bench race docs build agents clean help

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: $(VENV)/demo ## tune a real model for 30 seconds and show the result
	@rm -rf out/demo && mkdir -p out/demo
	@$(BIN)/shoestring run $(DEMO) --budget $(DEMO_BUDGET) --store out/demo/demo.db
	@echo
	@$(BIN)/shoestring status --store out/demo/demo.db
	@$(BIN)/shoestring report --store out/demo/demo.db -o out/demo/report.html > out/demo/report.log
	@echo
	@echo "Open out/demo/report.html in a browser: every curve, what the time was spent on, and why."

test: $(VENV)/test ## lint, type checks and all tests without heavy packages; run it before each change
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not benchmark_run"

race: $(VENV)/test ## compare our policies and Optuna on the shipped tables; see benchmarks/race/README.md for the whole race
	$(BIN)/python -m benchmarks race --methods quick optuna --budgets 1,2,5,10 --unit curves seconds --seeds 3 --jobs 2 -o out/race/runs.jsonl
	$(BIN)/python -m benchmarks race cost --methods ours optuna --patience 5 -o out/race/cost.jsonl
	$(BIN)/python -m benchmarks race report out/race/runs.jsonl --cost out/race/cost.jsonl -o out/race/index.html

# The first command repeats tests with all their examples and kills; `make test` repeats them only a few times.
# The other commands run tests that need heavy packages, each group in its own environment. A skipped test is an error here.
# The last command installs the wheel into an empty environment, and does there what the README shows.
# tools/heavy.py installs with the pip of the Python that runs it, because a new pip takes half the time.
test-heavy: $(VENV)/test .venvs/torch/ready .venvs/docs/ready ## all examples and kills, PyTorch, frameworks, the docs site in Chromium; run it before a release
	$(BIN)/python -m pytest --thorough -m repeated -n auto --dist worksteal
	.venvs/torch/bin/python -m pytest --all-must-run tests/parity tests/benchmarks -n auto --dist worksteal
	.venvs/docs/bin/python -m pytest --all-must-run tests/docs/test_site.py
	.venvs/docs/bin/python tools/heavy.py --all-must-run
	$(BIN)/python tools/check_wheel.py

# The benchmarks of all speed targets take three minutes. Without --quick each runs longer and also measures other tools.
bench: $(VENV)/test ## run the quick benchmarks: import, loop, start, decisions, server
	@missed=0; for name in speed start serve; do $(BIN)/python -m benchmarks $$name --quick || missed=1; done; exit $$missed

docs: .venvs/docs/ready ## build the documentation as a site in out/site
	NO_MKDOCS_2_WARNING=1 .venvs/docs/bin/mkdocs build --strict --quiet
	@echo "The site is in out/site; to serve it: .venvs/docs/bin/python -m http.server -d out/site"

build: .venvs/build/ready ## build and check wheel and sdist in out/dist
	.venvs/build/bin/python tools/check_release.py
	rm -rf out/dist
	.venvs/build/bin/python -m build --outdir out/dist
	.venvs/build/bin/twine check --strict out/dist/*

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

agents: $(VENV)/agents ## install PyTorch and simulated robots, for the benchmarks that train networks

$(VENV)/agents: $(VENV)/test benchmarks/constraints.txt
	@$(PIP) install --group agents -c benchmarks/constraints.txt
	@touch $@

.venvs/torch/ready: GROUPS = --group test --group bench --group torch -c benchmarks/constraints.txt
.venvs/torch/ready: benchmarks/constraints.txt
.venvs/docs/ready: GROUPS = --group docs 'pytest>=8' 'hypothesis>=6.100'
.venvs/build/ready: GROUPS = --group build

.venvs/%/ready: pyproject.toml
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check -q install --upgrade 'pip>=25.1'
	@$(@D)/bin/python -m pip --disable-pip-version-check -q install -e . $(GROUPS)
	@touch $@

clean:
	rm -rf $(VENV) .venvs out .mypy_cache .ruff_cache .pytest_cache .hypothesis
