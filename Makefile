# Everything runs in .venv, which is made from $(PYTHON).
PYTHON ?= python3
SALT ?= 3008.4
VENV ?= .venv
PYTEST_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES := pyproject.toml setup.py $(wildcard src/*.c src/*.h)

.PHONY: help demo test test-integration peer bench docs lint dist clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/built-plain ## the same jobs on a real minion, stock and with saltctx: a table and demo.png
	$(BIN)/python bench/demo.py

test: $(VENV)/built-developer ## build with all warnings as errors; unit, functional and stress tests
	$(BIN)/python -c "import saltctx._core"
	$(BIN)/pytest $(wildcard tests/unit tests/functional tests/stress) $(PYTEST_ARGS)

test-integration: $(VENV)/built-developer ## tests against a real master and minion on loopback
	$(BIN)/pytest tests/integration $(PYTEST_ARGS)

peer: ## Salt's own tests, from its sdist: the same outcomes with saltctx as without (PEER_ARGS=--more for more)
	$(PYTHON) tests/peer/run.py --salt $(SALT) $(PEER_ARGS)

bench: $(VENV)/built-plain ## the measurements on a real minion (a good ten minutes)
	$(BIN)/python bench/real.py

docs: $(VENV)/ready ## the documentation, into docs/_build
	$(PIP) install furo myst-parser sphinx
	$(BIN)/sphinx-build -q -W -b html docs docs/_build

lint: $(VENV)/ready ## style of the Python
	$(PIP) install ruff
	$(BIN)/ruff check .

dist: $(VENV)/ready ## sdist, and a wheel built from it, into dist/
	$(PIP) install build
	$(BIN)/python -m build

clean: ## what was built, .venv included
	rm -rf $(VENV) build dist docs/_build *.egg-info saltctx/*.so demo.png demo.json bench-*.json

$(VENV)/ready:
	@echo "making $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	@touch $@

# The two builds share one place: each takes away the other's mark.
$(VENV)/built-plain: $(SOURCES) | $(VENV)/ready
	@echo "installing Salt $(SALT) and building saltctx"
	$(PIP) install "salt==$(SALT)" --editable ".[tests,bench]"
	@rm -f $(VENV)/built-*
	@touch $@

$(VENV)/built-developer: $(SOURCES) | $(VENV)/ready
	@echo "installing Salt $(SALT) and building saltctx, warnings as errors"
	SALTCTX_WERROR=1 SALTCTX_REQUIRE_EXTENSION=1 $(PIP) install "salt==$(SALT)" --editable ".[tests,bench]"
	@rm -f $(VENV)/built-*
	@touch $@
