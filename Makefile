# attnd: multi-head attention over HTTP. `make help` lists the targets.

MAKEFLAGS += --no-print-directory
ifeq ($(MAKELEVEL),0) # a make below takes its jobs from the one above
MAKEFLAGS += -j$(shell nproc)
endif

BUILD    ?= build
SANITIZE ?=
PREFIX   ?= /usr/local
CC       ?= cc
VERSION  := 0.1.0

LIBS     := libmicrohttpd gnutls openblas zlib libzstd
CPPFLAGS += -D_GNU_SOURCE -DATTND_VERSION='"$(VERSION)"' -I. $(shell pkg-config --cflags $(LIBS) 2>/dev/null)
WARN     := -Wall -Wextra -Wshadow -Wconversion -Wvla -Wmissing-prototypes -Werror
HARDEN   := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all,-D_FORTIFY_SOURCE=2) -fstack-protector-strong
CFLAGS   ?= -O2 -g
ALL_CFLAGS := -std=gnu11 $(CFLAGS) $(WARN) $(HARDEN) -fPIE -pthread -MMD -MP
LDFLAGS  += $(if $(SANITIZE),-fsanitize=$(SANITIZE)) -pie -pthread -Wl,-z,relro,-z,now
LDLIBS   += $(shell pkg-config --libs $(LIBS) 2>/dev/null) -lm
TEST_LIBS := -lcmocka -lcurl -ljansson

SOURCES  := $(filter-out server/main.c,$(wildcard core/*.c core/kernels/*.c api/*.c config/*.c server/*.c))
OBJECTS  := $(SOURCES:%.c=$(BUILD)/%.o)
UNITS    := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/*_test.c tests/kernels/*_test.c))
E2E      := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/e2e/*_test.c tests/faults/*_test.c tests/load/*_test.c))
E2E_OBJS := $(patsubst tests/%.c,$(BUILD)/tests/%.o,$(filter-out %_test.c,$(wildcard tests/e2e/*.c)))
LOAD     := $(patsubst %.c,$(BUILD)/%.o,$(filter-out %_test.c %/load.c,$(wildcard tests/load/*.c)))
FAULTS   := $(patsubst %.c,$(BUILD)/%.o,$(filter-out %_test.c,$(wildcard tests/faults/*.c)))
FUZZERS  := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/fuzz/*_fuzz.c))
BENCHES  := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/bench/*_bench.c))
BENCH_OBJS := $(patsubst tests/%.c,$(BUILD)/tests/%.o,$(filter-out %_bench.c,$(wildcard tests/bench/*.c)))
EXAMPLES := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/examples/*.c))
ASAN     := BUILD=build/asan SANITIZE=address,undefined
COVERAGE := BUILD=build/coverage CC="cc --coverage" CFLAGS="-O1 -g"
TSAN     := BUILD=build/tsan SANITIZE=thread

.PHONY: all run test test-unit test-asan test-tsan coverage lint bench proof load overload soak crowd proxy restarts install image deps clean help
.SECONDARY:

all: $(BUILD)/attnd ## build build/attnd

run: deps ## install what is missing, build, and serve on 127.0.0.1:8080
	@$(MAKE) all
	$(BUILD)/attnd

test: deps ## install what is missing, build, and run all tests
	@$(MAKE) test-built

test-unit: $(UNITS) ## the unit and kernel tests alone
	@tests/run.sh $(UNITS)

test-built: $(BUILD)/attnd $(UNITS) $(E2E) $(FUZZERS) $(EXAMPLES)
	@BUILD=$(BUILD) tests/run.sh --fuzz "$(FUZZERS)" $(UNITS) $(E2E)

test-asan: deps ## all tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) $(ASAN) test-built

test-tsan: deps ## all tests under ThreadSanitizer
	@$(MAKE) $(TSAN) test-built

coverage: deps ## run all tests on a build for gcov; prints lines and branches reached
	@find build/coverage -name '*.gcda' -delete 2>/dev/null || true
	-@$(MAKE) $(COVERAGE) test-built
	@tests/coverage.sh build/coverage

lint: ## the house rules: include arrows, homes of libraries, lengths, shell scripts
	@tests/lint/lint.sh

bench: deps ## measure the core, the codec and the service; prints a table
	@$(MAKE) bench-built

bench-built: $(BUILD)/attnd $(BENCHES)
	@BUILD=$(BUILD) tests/bench/run.sh $(BENCHES)

proof: $(BUILD)/tests/proof/number_proof ## all 2^32 float32 and 10^8 decimals through the codec, about half an hour
	$(BUILD)/tests/proof/number_proof floats
	$(BUILD)/tests/proof/number_proof numbers

overload load soak crowd: $(BUILD)/attnd $(BUILD)/tests/load/load ## a daemon under load, and what it must not cost: tests/load/README.md
	@BUILD=$(BUILD) tests/load/scenario.sh $@

proxy: $(BUILD)/attnd $(BUILD)/tests/faults/proxy_test ## the rows of bad HTTP through HAProxy, which it installs
	@tests/deps.sh haproxy
	@BUILD=$(BUILD) tests/run.sh $(BUILD)/tests/faults/proxy_test

restarts: $(BUILD)/attnd $(BUILD)/tests/load/load ## RESTARTS (100) by SIGTERM of two instances behind HAProxy under load: no request fails
	@tests/deps.sh haproxy
	@BUILD=$(BUILD) tests/faults/restarts.sh

install: all ## install the daemon and its sample configuration under PREFIX
	install -D $(BUILD)/attnd $(DESTDIR)$(PREFIX)/bin/attnd
	install -D -m 644 config/attnd.conf $(DESTDIR)$(PREFIX)/share/attnd/attnd.conf

image: ## build the container image, start it, post a request, stop it
	@tests/e2e/image.sh

deps: ## install the Debian packages that are missing
	@tests/deps.sh

clean: ## remove what was built
	rm -rf build

help: ## list the targets
	@sed -n 's/^\([a-z -]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 28

$(BUILD)/attnd: $(BUILD)/server/main.o $(BUILD)/libattnd.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/libattnd.a: $(OBJECTS)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/tests/fuzz/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/fuzz/replay_main.o $(BUILD)/libattnd.a
	$(CC) $(LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LDLIBS)

$(BUILD)/tests/e2e/%: $(BUILD)/tests/e2e/%.o $(E2E_OBJS) $(BUILD)/libattnd.a
	$(CC) $(LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LDLIBS)

$(filter $(BUILD)/tests/faults/%,$(E2E)): %: %.o $(FAULTS) $(BUILD)/tests/e2e/daemon.o $(LOAD)
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka -ljansson -lm

# A daemon in which any call for memory, files, threads or locks can be made to
# fail. In a folder of its own, since the tests start $$BUILD/attnd.
BREAKABLE := malloc calloc realloc aligned_alloc open openat read fopen fstat accept4 socket epoll_create1 \
             pthread_create pthread_mutex_init pthread_cond_init pthread_rwlock_init
$(BUILD)/tests/faults/broken/attnd: $(BUILD)/server/main.o $(BUILD)/tests/faults/broken/broken.o $(BUILD)/libattnd.a
	$(CC) $(LDFLAGS) $(BREAKABLE:%=-Wl,--wrap=%) -o $@ $^ $(LDLIBS)

$(BUILD)/tests/faults/broken_test: | $(BUILD)/tests/faults/broken/attnd

$(BUILD)/tests/load/load: $(BUILD)/tests/load/load.o $(LOAD)
	$(CC) $(LDFLAGS) -o $@ $^ -lm

$(BUILD)/tests/load/load_test: $(BUILD)/tests/load/load_test.o $(LOAD)
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka -ljansson -lm

$(BENCHES): $(BUILD)/tests/bench/%: $(BUILD)/tests/bench/%.o $(BENCH_OBJS) $(BUILD)/libattnd.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# Named, so that make knows them as files that ought to exist: it would take the
# rule below, which does not link them, wherever they are not built yet.
$(E2E_OBJS) $(BUILD)/tests/fuzz/replay_main.o:

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/libattnd.a
	$(CC) $(LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LDLIBS)

$(BUILD)/api/openapi.o: api/openapi.json

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -c -o $@ $<

-include $(OBJECTS:.o=.d) $(wildcard $(BUILD)/server/main.d $(BUILD)/tests/*/*.d)
