# `make demo` and `make test` do all the set-up themselves: a .venv in the clone, the install, the run.
BIN := .venv/bin
READY := .venv/.ready
# Two workers of one thread, because two cores are what the suite is planned for.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

.PHONY: demo docs notebooks pictures test test-slow test-federation fuzz smoke bench lint format clean

$(READY): pyproject.toml tools/install
	tools/install
	touch $(READY)

demo: $(READY)
	$(BIN)/veracausa demo

# The pictures of the pages in docs/images, from small real runs. Needs chromium; about twelve minutes.
pictures: $(READY)
	tools/demo_picture
	$(BIN)/python tools/page_pictures.py

# The notebooks of examples/notebooks are run, and what they show is written into them. About a minute.
notebooks: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tools/notebooks.py

test: $(READY)
	$(PYTEST) -m "not slow and not gpu and not paper and not browser and not federation"

test-slow: $(READY)
	$(PYTEST) -m "slow or browser"

# The documentation site, from docs/ and from the program itself, into build/site; opens from disk, nothing is fetched.
docs: $(READY)
	$(BIN)/python tools/site_pages.py build/site-pages
	$(BIN)/zensical build --clean --strict
	@echo "build/site/index.html"

# Members as processes, each in a network namespace of its own where that is permitted, killed and cut off. About half an hour.
test-federation: $(READY)
	$(BIN)/python -m pytest -m federation

# Malformed, mutated and replayed ciphertexts: a peer must be refused, never crash or hang who reads it. About ten minutes.
fuzz: $(READY)
	$(BIN)/python tests/fuzz_ciphertexts.py --messages 100000
	$(BIN)/python tests/fuzz_blind.py --messages 100000

# Every published table and figure once, tiny, on the CPU; from scratch, so that nothing old is taken for done.
smoke: $(READY)
	rm -rf build/smoke
	mkdir -p build/smoke
	cd build/smoke && ../../$(BIN)/veracausa reproduce all --scale smoke

# One benchmark, e.g. `make bench NAME=wire ARGS="--repeats 3 --out build/bench"`. NAME: runtime, wire, causshield,
# discovery, discovery_sums, dispatch, moments, scale or align; without one, the list.
bench: $(READY)
	$(BIN)/python -m benchmarks $(NAME) $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_lock.py
	$(BIN)/python tools/audit_lock.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist src/*.egg-info
