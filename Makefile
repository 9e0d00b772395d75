# make demo: spot the words in examples/clips.   make test: install what the tests need, run them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(shell find src native -type f \
	! -name '*.so' ! -path '*/__pycache__/*' 2>/dev/null)
C_SOURCES = $(shell find native tests benchmarks web -name '*.[ch]' -o -name '*.cpp')

# Seconds for each fuzz target.
SECONDS ?= 60

.PHONY: help demo test lint format dev web fuzz test-sanitize clean

help:
	@echo 'make demo           install into .venv and spot the words in examples/clips'
	@echo 'make test           install what the tests need, lint, run every test'
	@echo 'make lint           ruff, mypy, vulture, codespell, clang-format'
	@echo 'make format         rewrite the sources as lint wants them'
	@echo 'make dev            install for development: Python files in place, C rebuilt on import'
	@echo 'make web            build the WebAssembly engine, test it, write the page to build/web'
	@echo 'make test-sanitize  the C core under the address and undefined-behaviour sanitizers'
	@echo 'make fuzz           fuzz every reader of files for SECONDS=60 each'
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

# The compiler comes from PyPI. The built engines are committed; a rebuild gives the same bytes.
web: $(VENV)/base.done
	$(BIN)/pip install -q 'ziglang==0.17.0'
	$(BIN)/python web/build.py engine
	$(BIN)/python web/build.py page --out build/web examples/clips/sentence.flac \
		$(filter-out %/sentence.flac,$(wildcard examples/clips/*.flac))
	$(if $(shell command -v node),cd web && node --test test/,@echo 'node is not installed: its tests were left out')

fuzz: $(VENV)/test.done
	$(BIN)/pip install -q atheris
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
