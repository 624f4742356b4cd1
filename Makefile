# The usual ways to work with this checkout. `make` lists them; the first one used makes the environment.

VENV    ?= .venv
RESULTS ?= results
RUN     ?= latest
# Empty: python3.11, else python3 (scripts/set-up-environment.sh chooses, and says what it needs).
PYTHON  ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PERFDIAG := $(BIN)/perf-diagnostics

# Given only when asked for, so that the command line's own defaults hold otherwise.
WHERE = $(if $(filter-out results,$(RESULTS)),--results-dir '$(RESULTS)')
SWEEP_OPTIONS = $(if $(WORKLOAD),--workload '$(WORKLOAD)') $(if $(BATCH_SIZES),--batch-sizes $(BATCH_SIZES)) \
	$(if $(TIME_BUDGET),--time-budget $(TIME_BUDGET)) $(WHERE) $(ARGS)
# A batch that runs out of memory is an answer, and the report that follows tells it.
SWEEP = $(PERFDIAG) sweep --allow-failures
DIAGNOSE = $(PERFDIAG) diagnose '$(RUN)' $(WHERE) $(ARGS)
REPORT = $(PERFDIAG) report '$(RUN)' $(WHERE) $(ARGS)
MANIFEST = $(PERFDIAG) manifest
NOT_FAST := slow or planted or gpu or browser or office
# Two files at a time, a thread each: none of these tests hangs on how long anything takes.
FAST_TESTS = $(BIN)/pytest -n 2 --dist loadfile -m 'not ($(NOT_FAST))'

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Even under -j: a benchmark that runs beside another, or beside the tests, measures both.
.NOTPARALLEL:

.PHONY: help setup setup-pre-commit clean \
	smoke list-devices benchmark benchmark-cpu benchmark-gpu benchmark-quick benchmark-all \
	analyse analyse-plots analyse-insights analyse-compare confirm largest-batch \
	report report-pdf report-pptx report-full quick-report manifest verify-manifest release \
	test test-all test-planted test-analysis test-reporting lint check kaggle-notebook kaggle-dataset

##@ Start here
help: ## List the targets and the variables they take
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z-]*:.*## / { printf "  %-18s %s\n", $$1, $$2 } \
		/^##\? / { print "  " substr($$0, 5) }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Make the environment in .venv (every other target does so when needed)
	@echo "Ready: $(VENV)"

$(STAMP): pyproject.toml constraints.txt
	@scripts/set-up-environment.sh '$(VENV)' '$(PYTHON)'

smoke: $(STAMP) ## Check the installation: a tiny model, measured, diagnosed and reported in under 30 s
	$(SWEEP) --quick --workload mlp --devices cpu --batch-sizes $(or $(BATCH_SIZES),8 32) \
		--time-budget $(or $(TIME_BUDGET),10) $(WHERE) $(ARGS)
	$(PERFDIAG) diagnose latest $(WHERE)
	$(PERFDIAG) report latest $(WHERE) --formats html,md

list-devices: $(STAMP) ## Show the devices that can be measured here
	$(PERFDIAG) devices

##@ Measure (writes a new run folder under results/)
benchmark: benchmark-cpu ## The usual one: benchmark-cpu

benchmark-cpu: $(STAMP) ## Sweep batch sizes on the processor
	$(SWEEP) --devices cpu $(SWEEP_OPTIONS)

benchmark-gpu: $(STAMP) ## Sweep batch sizes on the GPUs; skipped with a message where there is none
	$(SWEEP) --devices gpu $(SWEEP_OPTIONS)

benchmark-quick: $(STAMP) ## A first look: few batch sizes, about a minute
	$(SWEEP) --quick $(SWEEP_OPTIONS)

benchmark-all: $(STAMP) ## Sweep batch sizes on every device there is, in one run
	$(SWEEP) --devices all $(SWEEP_OPTIONS)

largest-batch: $(STAMP) ## Find the largest batch size that fits, by running it
	$(PERFDIAG) largest-batch $(if $(WORKLOAD),--workload '$(WORKLOAD)') $(WHERE) $(ARGS)

##@ Understand (the newest run, or RUN=...)
analyse: analyse-insights analyse-plots ## Findings and figures

analyse-insights: $(STAMP) ## What slows the training down, the proof, and what to try
	$(DIAGNOSE)

analyse-compare: $(STAMP) ## How the devices of the run compare (a section of the diagnosis)
	$(DIAGNOSE)

analyse-plots: $(STAMP) ## Figures: throughput, time breakdown, memory
	$(REPORT) --formats plots

confirm: $(STAMP) ## Try the advice: each remedy against the base, in pairs of processes
	$(PERFDIAG) confirm '$(RUN)' $(WHERE) $(ARGS)

##@ Tell others (into the run folder)
report: $(STAMP) ## HTML and Markdown
	$(REPORT) --formats html,md

report-pdf: $(STAMP) ## PDF; skipped with a message where Pango is missing
	$(REPORT) --formats pdf

report-pptx: $(STAMP) ## PowerPoint
	$(REPORT) --formats pptx

# What had been sealed and was changed keeps its seal, which stays broken until `make manifest` seals the folder as it is.
report-full: $(STAMP) ## Every format, then seal what is new in the run folder
	$(REPORT) --formats html,pdf,pptx,md,json,plots --seal

quick-report: smoke ## Smoke run, then its HTML, Markdown, PowerPoint and figures
	$(PERFDIAG) report latest $(WHERE) --formats html,md,pptx,plots

manifest: $(STAMP) ## Seal the run folder as it is: SHA-256 of every file in it
	$(MANIFEST) create '$(RUN)' $(WHERE)

verify-manifest: $(STAMP) ## Check the run folder against its seal
	$(MANIFEST) verify '$(RUN)' $(WHERE)

# report-full seals, so what is verified here is the run as it will be handed on.
release: benchmark-all analyse report-full verify-manifest ## Measure, analyse, report, seal and verify in one go

##@ Work on the code
test check: export OMP_NUM_THREADS = 1

test: $(STAMP) ## Fast tests, in a few minutes
	$(FAST_TESTS) $(ARGS)

test-all: $(STAMP) ## All tests that need no GPU; those that miss chromium or LibreOffice skip themselves
	$(BIN)/pytest -m 'not gpu' $(ARGS)

test-planted: $(STAMP) ## Plant known faults in real trials, and see that the verdict names them
	$(BIN)/pytest -m planted $(ARGS)

test-analysis: $(STAMP) ## Tests of the diagnosis
	$(BIN)/pytest tests/diagnose $(ARGS)

test-reporting: $(STAMP) ## Tests of the reports
	$(BIN)/pytest tests/report $(ARGS)

lint: $(STAMP) ## Style and format, nothing changed
	$(BIN)/ruff check
	$(BIN)/ruff format --check

check: lint ## What continuous integration asks: style, types, import contracts, fast tests
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(FAST_TESTS) $(ARGS)

setup-pre-commit: $(STAMP) ## Check each commit before it is made
	$(BIN)/pre-commit install

kaggle-notebook: $(STAMP) ## Build the notebook of kaggle/ from its source
	$(BIN)/python scripts/build-notebook.py

kaggle-dataset: $(STAMP) ## Wheels for notebooks without internet: ours, and what Kaggle's image lacks
	scripts/kaggle-dataset.sh '$(VENV)'

clean: ## Remove build products and caches; results and the environment stay
	rm -rf build dist htmlcov .coverage .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find $(wildcard src tests benchmarks kaggle) -name __pycache__ -prune -exec rm -rf {} +

##@ Variables, as in: make benchmark-all BATCH_SIZES=1,2,4 TIME_BUDGET=120
##? WORKLOAD           what is trained: distilbert-sst2, mlp, tiny-transformer, or module:function
##? BATCH_SIZES        batch sizes, separated by commas or spaces
##? TIME_BUDGET        seconds the whole sweep may take
##? RUN                run folder to analyse, report or verify (latest)
##? RESULTS            where run folders lie (results)
##? ARGS               more arguments for the target's command
##? PYTHON, VENV       interpreter to make the environment from, and its place (.venv)
##? SYSTEM_PACKAGES    no: never install Debian packages, even as root
