# Two commands are enough: `make run` opens the console, `make test` proves it. Both set up what is missing.
BIN := .venv/bin
INPUTS := pyproject.toml constraints.txt tools/setup.sh

.PHONY: run test lint format bench fuzz lab test-lab clean
.DEFAULT_GOAL := run

.venv/.ready-run: $(INPUTS)
	@tools/setup.sh run
.venv/.ready-test: $(INPUTS)
	@tools/setup.sh test
.venv/.ready-fuzz: $(INPUTS)
	@tools/setup.sh fuzz

# Probes need root; sudo asks for it where there is one. Who does not get it is offered a recording to look at.
run: .venv/.ready-run
	@if [ "$$(id -u)" -ne 0 ] && command -v sudo >/dev/null && sudo -v; then exec sudo $(BIN)/netconsole $(ARGS); else exec $(BIN)/netconsole $(ARGS); fi

# Of the lab what boots once and is quick: machine, traffic, and the probes' exactness on its kernel. `make test-lab` runs the rest.
LAB := $(addprefix tests/lab/test_,$(addsuffix .py,btf fetch machine traffic live_inside))
TESTS := tests/unit tests/tui tests/live $(LAB)

# Two processes side by side, by the groups of tests/conftest.py: what measures this machine, and what needs nothing but time.
test: lint
	$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),-n 2 --dist loadgroup --durations=20 $(TESTS))

lint: .venv/.ready-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.ready-test
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: .venv/.ready-test
	@status=0; for script in bench/*.py; do echo; echo "$$script"; $(BIN)/python $$script || status=1; done; exit $$status

# Damaged and hostile files into everything that reads one, guided by what code they reach: a minute each.
fuzz: .venv/.ready-fuzz
	$(BIN)/python -m tests.fuzz $(ARGS)

# A hypervisor of one's own: Debian's kernel under QEMU, Open vSwitch, a guest, some traffic, and the console on it.
lab: .venv/.ready-test
	$(BIN)/python -m tests.lab $(ARGS)

# Everything in the lab, the paths of its guests too: longer than the rest together.
test-lab: .venv/.ready-test
	$(BIN)/python -m pytest tests/lab $(ARGS)

clean:
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache
