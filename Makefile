# make demo: spot the words in examples/clips.   make test: install what the tests need, run them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(shell find src native -type f \
	! -name '*.so' ! -path '*/__pycache__/*' 2>/dev/null)
C_SOURCES = $(shell find native tests benchmarks fuzz -name '*.[ch]' -o -name '*.cpp')

# Seconds for each fuzz target.
SECONDS ?= 60

.PHONY: help demo test lint format dev fuzz test-sanitize test-threads clean

help:
	@echo 'make demo           install into .venv and spot the words in examples/clips'
	@echo 'make test           install what the tests need, lint, run every test'
	@echo 'make lint           ruff, mypy, vulture, codespell, clang-format'
	@echo 'make format         rewrite the sources as lint wants them'
	@echo 'make dev            install for development: Python files in place, C rebuilt on import'
	@echo 'make test-sanitize  the C core under the address and undefined-behaviour sanitizers'
	@echo 'make test-threads   the core and the extension under ThreadSanitizer, from 8 threads'
	@echo 'make fuzz           fuzz every reader of files and the C interface, SECONDS=60 each'
	@echo 'make clean          remove .venv and everything built'

demo: $(VENV)/base.done
	$(BIN)/deltakwt spot examples/clips/*.flac

# SYSTEM=no leaves Debian packages alone; the tests that need them then skip and say so.
test: $(VENV)/test.done lint
	$(if $(filter no,$(SYSTEM)),,sh scripts/install-system.sh tests/apt-packages.txt)
	$(BIN)/python -m pytest -n 2 $(PYTEST)
	$(MAKE) test-sanitize

lint: $(VENV)/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/vulture
	$(BIN)/codespell
	$(BIN)/clang-format --dry-run -Werror $(C_SOURCES)

format: $(VENV)/test.done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_SOURCES)

test-sanitize:
	sh native/test_sanitize.sh

test-threads: $(VENV)/test.done
	$(BIN)/pip install -q 'nanobind>=2.4' cmake ninja
	PATH="$(abspath $(BIN)):$$PATH" PYTHON=python sh native/test_threads.sh

fuzz: $(VENV)/test.done
	$(BIN)/pip install -q atheris
	$(if $(filter no,$(SYSTEM)),,sh scripts/install-system.sh tests/apt-packages.txt)
	$(BIN)/python fuzz/run.py --seconds $(SECONDS) $(FUZZ)

dev: $(VENV)/pip.done
	$(BIN)/pip install -q 'scikit-build-core>=0.10' 'nanobind>=2.4' cmake ninja
	$(BIN)/pip install -q --no-build-isolation -Ceditable.rebuild=true -e '.[test]'

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/pip.done:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/base.done: $(VENV)/pip.done $(SOURCES)
	$(BIN)/pip install -q .
	@touch $@

$(VENV)/test.done: $(VENV)/pip.done $(SOURCES)
	$(BIN)/pip install -q '.[test]'
	@touch $@ $(VENV)/base.done
