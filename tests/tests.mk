# The programs among the tests, and what each is linked from. For the Makefile.

programs = $(patsubst %.c,$(BUILD)/%,$(wildcard $1))
objects  = $(patsubst %.c,$(BUILD)/%.o,$(filter-out $2,$(wildcard $1)))

UNITS    := $(call programs,tests/unit/*_test.c tests/kernels/*_test.c)
EMULATED := $(addprefix $(BUILD)/tests/emulated/,kernels/kernels_test kernels/pieces_test unit/weights_test unit/mha_test unit/mha_model_test unit/model_test e2e/vectors_test e2e/models_test)
E2E      := $(call programs,tests/e2e/*_test.c tests/faults/*_test.c tests/load/*_test.c)
FUZZERS  := $(call programs,tests/fuzz/*_fuzz.c)
BENCHES  := $(call programs,tests/bench/*_bench.c)
PROXIED  := $(addprefix $(BUILD)/tests/,faults/http_test faults/json_test e2e/keys_test e2e/bodies_test faults/proxy_test)
EXAMPLES := $(call programs,tests/examples/*.c)

E2E_OBJS    := $(call objects,tests/e2e/*.c,%_test.c)
FAULTS_OBJS := $(call objects,tests/faults/*.c,%_test.c)
LOAD_OBJS   := $(call objects,tests/load/*.c,%_test.c %/load.c)
BENCH_OBJS  := $(call objects,tests/bench/*.c,%_bench.c)

# make coverage counts these and leaves the rest as fast as it is.
ifdef GCOV
COUNTED := api/*.c server/*.c config/*.c core/shape.c core/tensor.c core/mask.c core/mha_check.c core/mha_mask.c
$(patsubst %.c,$(BUILD)/%.o,$(wildcard $(COUNTED))): ALL_CFLAGS += --coverage -O1
CPPFLAGS += -DGCOV
LDFLAGS += --coverage
endif

TEST_LIBS := -lcmocka -lcurl -ljansson

# As on a processor with AMX, whose tiles are then emulated.
EMULATOR := $(BUILD)/tests/kernels/emulator/amx.o
$(BUILD)/tests/emulated/%: $(BUILD)/tests/%.o $(EMULATOR) $(BUILD)/libattnd.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -Wl,--wrap=cpu_features -o $@ $(filter %.o,$^) $(filter %.a,$^) $(TEST_LIBS) $(LDLIBS)

# What is exact does not depend on who computes it; how fast is another matter.
$(BUILD)/tests/emulated/bench/accuracy_bench: $(BENCH_OBJS)

$(BUILD)/tests/emulated/e2e/%: $(BUILD)/tests/e2e/% | $(BUILD)/tests/emulated/attnd
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nBUILD=%s exec %s\n' $(BUILD)/tests/emulated $< >$@
	@chmod +x $@

$(BUILD)/tests/emulated/attnd: $(BUILD)/server/main.o $(EMULATOR) $(BUILD)/libattnd.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -Wl,--wrap=cpu_features -o $@ $^ $(LDLIBS)

# What calls the fuzz targets: a fuzzer, by a flag of its compiler, or the replay.
FUZZER   ?=
$(BUILD)/tests/fuzz/%: $(BUILD)/tests/fuzz/%.o $(if $(FUZZER),,$(BUILD)/tests/fuzz/replay_main.o) $(BUILD)/libattnd.a
	$(CC) $(LDFLAGS) $(FUZZER) -o $@ $^ $(TEST_LIBS) $(LDLIBS)

$(BUILD)/tests/e2e/%: $(BUILD)/tests/e2e/%.o $(E2E_OBJS) $(BUILD)/libattnd.a
	$(CC) $(LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LDLIBS)

# These have a witness too, or look at the daemon's memory.
$(BUILD)/tests/e2e/keys_test $(BUILD)/tests/e2e/bodies_test: $(FAULTS_OBJS)
$(addprefix $(BUILD)/tests/e2e/,keys_test bodies_test attention_test memory_test): $(LOAD_OBJS)

# What they start.
$(E2E): | $(BUILD)/attnd
$(BUILD)/tests/e2e/examples_test: | $(EXAMPLES)

$(filter $(BUILD)/tests/faults/%,$(E2E)): %: %.o $(FAULTS_OBJS) $(BUILD)/tests/e2e/daemon.o $(BUILD)/tests/e2e/proxy.o $(LOAD_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka -ljansson -lm

# A daemon in which any call for memory, files, threads or locks can be made to
# fail. In a folder of its own, since the tests start $$BUILD/attnd.
BREAKABLE := malloc calloc realloc aligned_alloc open openat read fopen fstat accept4 socket epoll_create1 \
             pthread_create pthread_mutex_init pthread_cond_init pthread_rwlock_init
$(BUILD)/tests/faults/broken/attnd: $(BUILD)/server/main.o $(BUILD)/tests/faults/broken/broken.o $(BUILD)/libattnd.a
	$(CC) $(LDFLAGS) $(BREAKABLE:%=-Wl,--wrap=%) -o $@ $^ $(LDLIBS)

$(BUILD)/tests/faults/broken_test: | $(BUILD)/tests/faults/broken/attnd

$(BUILD)/tests/load/load: $(BUILD)/tests/load/load.o $(LOAD_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ -lm

$(BUILD)/tests/load/load_test: $(BUILD)/tests/load/load_test.o $(LOAD_OBJS)
	$(CC) $(LDFLAGS) -o $@ $^ -lcmocka -ljansson -lm

$(BENCHES): $(BUILD)/tests/bench/%: $(BUILD)/tests/bench/%.o $(BENCH_OBJS) $(BUILD)/libattnd.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# Named, so that make knows them as files that ought to exist: it would take the
# rule below, which does not link them, wherever they are not built yet.
$(E2E_OBJS) $(BUILD)/tests/fuzz/replay_main.o:

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/libattnd.a
	$(CC) $(LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LDLIBS)
