# make run: set up, fetch MNIST, compare seven methods in Class-IL of split MNIST, shortened (minutes on two cores).
# make test: set up, then ruff, mypy beside pytest. The slowest files come first: with others last, a core would idle.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: run test docs docs-serve clean

run: $(INSTALLED)
	$(BIN)/threefold reproduce table4 --quick --device cpu

# the HTML report is tested in a real browser; CHROMIUM names one that is not called chromium
test: $(INSTALLED)
	@command -v $${CHROMIUM:-chromium} > /dev/null || { \
		echo "make test: installing Debian's chromium, for the tests of pages (CHROMIUM=/path/to/one uses yours instead)" && \
		{ apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium; } > /dev/null; }
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy > .venv/mypy.txt 2>&1 & typing=$$!; \
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder; tests=$$?; \
	wait $$typing; types=$$?; echo mypy: && cat .venv/mypy.txt; \
	exit $$((tests || types))

$(INSTALLED): requirements.lock requirements-torch.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "threefold needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0])'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -r requirements-torch.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true  # pip compiles on one core; templates do not compile
	touch $@

# what the pages say about results, from the stored rows; then all pages as a site, in .site
docs: $(INSTALLED)
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict --quiet

docs-serve: $(INSTALLED)
	$(BIN)/mkdocs serve

clean:
	rm -rf .venv
