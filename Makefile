# Two commands are enough: `make run` opens the console, `make test` proves it. Both set up what is missing.
BIN := .venv/bin
INPUTS := pyproject.toml constraints.txt tools/setup.sh src/netconsole/cli/netconsole.sh
# Each console and each collector that a test starts reads what is compiled already; so does each pytest, in the lab as well.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test every-stage in-turn booting starting counting making computing costs terminals lint format bench fuzz dist mutants atlas lab test-lab clean
.DEFAULT_GOAL := run

.venv/.ready-run: $(INPUTS)
	@tools/setup.sh run
.venv/.ready-test: $(INPUTS)
	@tools/setup.sh test
.venv/.ready-lab: $(INPUTS)
	@tools/setup.sh lab
.venv/.ready-fuzz: $(INPUTS)
	@tools/setup.sh fuzz

# Probes need root; sudo asks for it where there is one. Who does not get it is offered a recording to look at.
run: .venv/.ready-run
	@if [ "$$(id -u)" -ne 0 ] && command -v sudo >/dev/null && sudo -v; then exec sudo $(BIN)/netconsole $(ARGS); else exec $(BIN)/netconsole $(ARGS); fi

# One run at a time: another one's packets, machines and processes would be in this one's counts.
LOCK := $(or $(XDG_RUNTIME_DIR),/tmp)/netconsole-tests-$(shell id -u).lock

# Every test is of one stage, by its marker (tests/conftest.py); what is `long` too is for `make test-lab` alone. What takes whole processors comes first: `booting`. Then,
# side by side because they wait most of the time: `starting` (two files at a time), `counting` and `making` (one test at a time).
# Beside all of these: `terminals`, which mostly wait too, and `computing` in the time that is left (SCHED_IDLE). Last and alone: `costs`.
TOGETHER := $(MAKE) --no-print-directory --jobs --keep-going --output-sync=target
PYTEST := $(BIN)/python -m pytest
# Three workers for two processors: some tests wait for processes that they start, and two workers leave one idle.
WORKERS = $(shell echo $$(( ($$(nproc) * 3 + 1) / 2 )))

test: .venv/.ready-test
ifdef ARGS
test: lint
	$(PYTEST) $(ARGS)
else
	+@exec 9>$(LOCK); flock --nonblock 9 || { \
		echo 'Another run of the tests is under way: waiting until it ends, ten minutes at most.'; \
		flock --wait 600 9 || echo 'It has not ended, and may disturb this one.'; }; \
	exec $(MAKE) --no-print-directory every-stage
endif

every-stage: .venv/.ready-test
	@echo 'The output of each part comes when it has ended (minutes).'
	@$(BIN)/python -m tests.support.live.remains
	+@failed=0; \
	$(TOGETHER) lint computing terminals in-turn || failed=1; \
	$(TOGETHER) costs || failed=1; \
	exit $$failed

in-turn: .venv/.ready-test
	+@failed=0; \
	$(TOGETHER) booting || failed=1; \
	$(TOGETHER) starting counting making || failed=1; \
	exit $$failed

booting: .venv/.ready-test
	$(PYTEST) -m 'booting and not long' --durations=10 tests/lab

counting: .venv/.ready-test
	$(PYTEST) -m 'counting and not long' --durations=20 tests/live

making: .venv/.ready-test
	$(PYTEST) -m 'making and not long' --durations=20 tests/live/contexts

costs: .venv/.ready-test
	$(PYTEST) -m 'costs and not long' --durations=10 tests/live

terminals: .venv/.ready-test
	$(PYTEST) -m 'terminals and not long' --durations=5 tests/tui tests/live/console

starting: .venv/.ready-test
	$(PYTEST) -m 'starting and not long' -n logical --dist loadfile --no-loadscope-reorder --durations=10 tests/live/console tests/live

computing: .venv/.ready-test
	chrt --idle 0 $(PYTEST) -m 'computing and not long' -n $(WORKERS) --durations=10

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

# Single-line faults, one at a time: which of them does no test notice? FILE='src/…': only that one; ARGS='--sample 0': all
# of its mutants, not a sample (docs/design/testing.md).
mutants: .venv/.ready-test
	nice -n 15 $(BIN)/python -m tools.mutants $(FILE) $(ARGS)

# What this kernel calls each fault of tests/faults: reason, function, counters that move (docs/reference/atlas.md).
atlas: .venv/.ready-test
	@$(BIN)/python -m tests.support.live.atlas $(ARGS)

# A wheel, and one executable file with all that the console needs but Python, in dist/ (docs/use/single-file.md).
dist: .venv/.ready-test
	@$(BIN)/python -m tools.dist $(ARGS)

# A hypervisor of one's own: Debian's kernel under QEMU, Open vSwitch, a guest, some traffic, and the console on it.
lab: .venv/.ready-test
	$(BIN)/python -m tests.lab $(ARGS)

# Everything in the lab, the paths of its guests too: longer than the rest together. KERNEL=NAME: all of it on that kernel alone.
# KPROBES=1: as if the kernel refused fentry and fexit.
test-lab: .venv/.ready-lab
	NETCONSOLE_LAB_KERNEL='$(KERNEL)' NETCONSOLE_LAB_KPROBES='$(KPROBES)' $(PYTEST) -m 'long or booting' $(ARGS)

clean:
	find src tests tools bench -name __pycache__ -prune -exec rm -rf {} +
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache
