# Two commands are enough: `make run` opens the console, `make test` proves it. Both set up what is missing.
BIN := .venv/bin
INPUTS := pyproject.toml constraints.txt tools/setup.sh

.PHONY: run test in-turn booting starting counting computing costs terminals lint format bench fuzz lab test-lab clean
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

# What takes whole processors first: what boots another machine. Then, side by side because they wait most of the time:
# what starts and ends collectors and consoles (two files at a time, the longest first), and what counts (one test at a
# time). In the time that all of these leave (SCHED_IDLE): what only computes. Last, beside consoles that only wait for
# their terminals: what holds costs against a budget.
COMPUTING := tests/unit $(addprefix tests/live/test_collector_,kernels.py headers.py) tests/live/test_layout.py $(addprefix tests/lab/test_,btf.py fetch.py qemu.py) tests/tui
STARTING := $(addprefix tests/live/test_,compare.py cleanup_console.py collector_commands.py cleanup_collector.py doctor.py collector_figures.py probe_host_path_headers.py collector_rings.py snapshot.py escalation.py compiled_programs.py collector_statistics.py collector_interpreters.py vm_path_without_kprobes.py)
COSTS := tests/live/test_governor.py
TERMINALS := $(addprefix tests/tui/test_,process.py lifeline.py)
# Of the lab what boots once and is quick: machine, traffic, and the probes' exactness on its kernel. `make test-lab` runs the rest.
BOOTING := $(addprefix tests/lab/test_,machine.py traffic.py live_inside.py)
without = $(addprefix --ignore=,$(1))
TOGETHER := $(MAKE) --no-print-directory --jobs --keep-going --output-sync=target
PYTEST := $(BIN)/python -m pytest

test: .venv/.ready-test
ifdef ARGS
test: lint
	$(PYTEST) $(ARGS)
else
	@echo 'The output of each part comes when it has ended (minutes).'
	+@failed=0; \
	$(TOGETHER) lint computing in-turn || failed=1; \
	$(TOGETHER) costs terminals || failed=1; \
	exit $$failed
endif

in-turn: .venv/.ready-test
	+@failed=0; \
	$(TOGETHER) booting || failed=1; \
	$(TOGETHER) starting counting || failed=1; \
	exit $$failed

booting: .venv/.ready-test
	$(PYTEST) --durations=10 $(BOOTING)

counting: .venv/.ready-test
	$(PYTEST) --durations=20 tests/live $(call without,$(COMPUTING) $(STARTING) $(COSTS))

costs: .venv/.ready-test
	$(PYTEST) --durations=10 $(COSTS)

terminals: .venv/.ready-test
	$(PYTEST) --durations=5 $(TERMINALS)

starting: .venv/.ready-test
	$(PYTEST) -n logical --dist loadfile --no-loadscope-reorder --durations=10 $(STARTING)

computing: .venv/.ready-test
	chrt --idle 0 $(PYTEST) -n logical --durations=10 $(COMPUTING) $(call without,$(TERMINALS))

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
