# Every target creates the environment first if it is missing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
BASE   := $(VENV)/.base
DEMO   := build/demo
TOOLS  := build/tools
PIP_AUDIT := 2.10.1
PIP_TOOLS := 7.6.0
CYCLONEDX := 7.5.0
DATA   ?= ../shared/data
FUZZ_FILES ?= 100000
SEED   ?= 0

.PHONY: venv demo loop-news docs test test-slow fuzz clusters clusters-smoke flink-test spark-test s3-test lint format audit hashes sbom clean

venv: $(STAMP)

# The demo needs the base package, without torch; development needs the rest. A stamp is written last. If that of the base package is
# missing, an earlier call was interrupted and may have left a broken package, so the environment is created from scratch. If a stamp is out
# of date, the changed requirements are installed over it. pip compiles what it installs, but not an editable project, so the first commands
# would take a second longer.
$(BASE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	@echo "Installing into $(VENV), which takes half a minute"
	@if [ -e $@ ]; then rm $@; else $(PYTHON) -m venv --clear $(VENV); fi
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[cpu,report]'
	@$(BIN)/python -m compileall -q miner pipelines
	@touch $@

$(STAMP): $(BASE)
	@echo "Installing the tools of development, which takes a minute or two"
	@rm -f $@ $(BASE)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[cpu,dev]'
	@touch $(BASE) && touch $@

# Mine the three language pairs of examples/ and print precision, recall and F1 against the gold pairs.
demo: $(BASE)
	@rm -rf $(DEMO)
	@set -e; for lang in de ru hi; do \
	  echo; echo "== examples/en.txt + examples/$$lang.txt"; \
	  $(BIN)/miner mine examples/en.txt examples/$$lang.txt --source-lang en --target-lang $$lang \
	    --gold examples/gold.en-$$lang.tsv --output $(DEMO)/en-$$lang --json $(DEMO)/en-$$lang.json; \
	done
	@echo; $(BIN)/python examples/scores.py $(DEMO)/en-de.json $(DEMO)/en-ru.json $(DEMO)/en-hi.json

# Run three rounds of mining and training on monolingual news; DATA is a directory of corpora with train/ and eval/.
loop-news: $(STAMP)
	@rm -rf build/loop-news build/loop-news-data
	$(BIN)/python configs/loop_news_data.py --data $(DATA) --output build/loop-news-data
	$(BIN)/miner loop configs/loop-news.yaml --output build/loop-news

# Build the documentation as a site in build/docs. Broken links and missing docstrings are errors.
docs: $(STAMP)
	$(BIN)/mkdocs build --quiet --strict --config-file mkdocs.yaml

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal -m "not slow"

# Fetch Flink, Spark and an S3 server into build/clusters: half a gigabyte. Needs Java and Maven, for S3 Go.
clusters: $(STAMP)
	@for name in spark flink s3; do $(BIN)/python deploy/clusters/clusters.py fetch $$name || status=1; done; exit $${status:-0}

# Mine the examples once on each, and compare the pairs with those of a local run, in three minutes in all. What is not installed, cannot be
# fetched in a minute, or has no time left is skipped with the reason.
clusters-smoke: $(STAMP)
	@start=$$(date +%s); for name in flink s3 spark; do \
	  { timeout 60 $(BIN)/python deploy/clusters/clusters.py fetch $$name || echo "$$name skipped: it was not fetched in a minute; make clusters"; } & \
	done; wait; \
	timeout --signal=INT --kill-after=20 $$((180 - $$(date +%s) + start)) $(BIN)/python -m pytest -n 0 -x -rs tests/project/test_clusters.py -k smallest; status=$$?; \
	for name in flink s3 spark; do $(BIN)/python deploy/clusters/clusters.py stop $$name; done; \
	[ $$status != 124 ] && [ $$status != 137 ] || { echo "the other clusters skipped: three minutes are over; make flink-test spark-test s3-test"; exit 0; }; exit $$status

# Mine the examples on a cluster of this machine, or into a bucket of an S3 server; kill its machines and the driver.
flink-test spark-test s3-test: $(STAMP)
	@$(BIN)/python deploy/clusters/clusters.py fetch $(@:-test=)
	@$(BIN)/python -m pytest -n 0 -rs tests/project/test_clusters.py -k $(@:-test=)

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal -m slow

# Read changed files of every format; FUZZ_FILES and SEED say how many, and which.
fuzz: $(STAMP)
	@$(BIN)/python benchmarks/fuzz.py --files $(FUZZ_FILES) --seed $(SEED) --keep build/fuzz

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Tools of their own environment, because they pin packages of their own.
$(TOOLS)/.installed:
	@$(PYTHON) -m venv --clear $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==$(PIP_AUDIT) pip-tools==$(PIP_TOOLS) cyclonedx-bom==$(CYCLONEDX)
	@touch $@

# Compare the pinned packages with the database of known vulnerabilities; skipped where it, or the package index, cannot be reached.
audit:
	@$(MAKE) --silent $(TOOLS)/.installed || { echo "audit skipped: pip-audit cannot be installed"; exit 0; }; \
	[ -e $(TOOLS)/.installed ] || exit 0; \
	$(TOOLS)/bin/python -c "import json, re, urllib.request as r; \
	  pin = re.search(r'^(click)==(.*)$$', open('constraints.txt').read(), re.M); \
	  json.load(r.urlopen(f'https://pypi.org/pypi/{pin[1]}/{pin[2]}/json', timeout=10))['vulnerabilities']" 2> /dev/null || \
	  { echo "audit skipped: the database of vulnerabilities cannot be reached"; exit 0; }; \
	$(TOOLS)/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

# Write the pinned packages with their hashes, for `pip install --require-hashes --requirement build/requirements.txt`.
hashes: $(TOOLS)/.installed
	@$(TOOLS)/bin/pip-compile --quiet --generate-hashes --allow-unsafe --extra cpu --constraint constraints.txt \
	  --output-file build/requirements.txt pyproject.toml

# Write the pinned packages as a software bill of materials.
sbom: $(TOOLS)/.installed
	@PYTHONWARNINGS=ignore $(TOOLS)/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON --output-file build/sbom.json constraints.txt

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
