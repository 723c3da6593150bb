# make setup | demo | test | test-fast | test-long | crash | lint | docs | protocol | golden | bench | lock
# Only Python 3.11+ and Java 17+ are needed; everything else goes into .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.setup
# Two test processes, each with a Spark of its own; a file's tests stay together, in the order of tests/conftest.py.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: setup demo test test-fast test-long crash lint docs protocol golden bench lock clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt packages/penstock/pyproject.toml packages/penstock-sdk/pyproject.toml packages/penstock-protocol/pyproject.toml
	@PYTHON="$(PYTHON)" sh scripts/setup.sh $(VENV)
	@touch $(STAMP)

demo: $(STAMP)
	@sh scripts/need-java.sh
	@$(BIN)/python examples/demo.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy packages/penstock-protocol/src packages/penstock-sdk/src packages/penstock/src tests bench examples scripts
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile

# The fast loop for people: no Spark is started.
test-fast: $(STAMP)
	$(PYTEST) -q -m "not spark and not crash and not long and not thorough"

test: lint
	@sh scripts/need-java.sh
	@rm -f .pytest_cache/v/cache/lastfailed
	$(PYTEST) -m "not long" || { red=$$?; test $$red -eq 1 || exit $$red; $(BIN)/python scripts/again.py; }

# The long campaigns of the tests; `make test` runs a fixed-seed share of them.
test-long: $(STAMP)
	@sh scripts/need-java.sh
	$(BIN)/pytest -m "crash or long" -s --timeout 7200

# Tries to break Penstock and prints what it found: `make crash N=1000 SEED=1 DEST=files,kafka`. All three may be left out.
crash: $(STAMP)
	@sh scripts/need-java.sh
	$(BIN)/python -m tests.lab --kills $(or $(N),200) $(if $(SEED),--seed $(SEED)) $(if $(DEST),--dest $(DEST))

bench: $(STAMP)
	@sh scripts/need-java.sh
	$(BIN)/python -m bench

# Writes anew what the command shows when something is wrong: look at the difference before you commit it.
golden: $(STAMP)
	@sh scripts/need-java.sh
	PENSTOCK_GOLDEN=write $(BIN)/pytest -q tests/integration/test_golden.py

# Rewrites what is generated in docs/.
docs: $(STAMP)
	$(BIN)/python -m scripts.docs

# Rewrites the Python and Go code of the messages in proto/, and the example that is made of the Go template.
protocol: $(STAMP)
	$(BIN)/python -m scripts.protocol

# Pins what setup installs. Run it after changing a dependency; the result names versions only.
lock: $(STAMP)
	$(BIN)/python scripts/lock.py > constraints.txt

clean:
	rm -rf $(VENV) demo build dist
