# Thin names for what ./setup and the venv do.
PYTHON := .venv/bin/python
# Only for tests that need no engine.
PARALLEL := -n auto --dist worksteal

.PHONY: setup image check test test-docker test-slow docs bench bench-security

setup:
	./setup

image:
	$(PYTHON) -c 'from corral.sandbox.image import build_image; print(build_image(on_progress=print).tag)'

check:
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m ruff check
	$(PYTHON) -m mypy
	$(PYTHON) -m pytest -q tests/docs tests/architecture

test:
	$(PYTHON) -m pytest -q $(PARALLEL) -m "not docker and not slow and not model"

test-docker:
	$(PYTHON) -m pytest -q -m "docker and not slow and not model"

# All of what .ci/run and ./setup test only do a seeded tenth of.
test-slow:
	CORRAL_FRACTION=1 $(PYTHON) -m pytest -m "(slow or repeated) and not model" --durations 20

# Writes what is made from the code, then checks all of it.
docs:
	for page in api cli event settings tool; do $(PYTHON) -m tests.docs.$${page}_reference; done
	$(PYTHON) -m pytest -q tests/docs

bench:
	$(PYTHON) -m benchmarks --write docs/performance.md

bench-security:
	$(PYTHON) -m benchmarks.security $(if $(shell command -v runsc),--gvisor) --write docs/security.md
