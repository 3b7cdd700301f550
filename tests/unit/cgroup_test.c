#include "config/cgroup.h"
#include "config/cpus.h"
#include "config/memory.h"
#include "tests/folder.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A machine made of files, below a directory of the test's own. */
static char root[] = "/tmp/attnd_cgroup_test_XXXXXX";

static void write_file(const char *path, const char *text)
{
    char full[512];

    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *c = full + strlen(root) + 1; *c != '\0'; c++)
        if (*c == '/') {
            *c = '\0';
            mkdir(full, 0700);
            *c = '/';
        }

    FILE *file = fopen(full, "w");

    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int make_root(void **state)
{
    (void)state;
    return folder_make(root);
}

static int remove_root(void **state)
{
    (void)state;
    return folder_remove(root);
}

static void a_quota_is_rounded_up_to_whole_cpus(void **state)
{
    (void)state;
    assert_int_equal(cgroup_parse_cpu_max("150000 100000\n"), 2);
    assert_int_equal(cgroup_parse_cpu_max("200000 100000"), 2);
    assert_int_equal(cgroup_parse_cpu_max("1000 100000\n"), 1);
    assert_int_equal(cgroup_parse_cpu_max("9223372036854775807 1"), INT64_MAX);
    assert_int_equal(cgroup_parse_quota("150000\n", "100000\n"), 2);
    assert_int_equal(cgroup_parse_quota("50000", "100000"), 1);
}

static void what_is_no_quota_is_no_limit(void **state)
{
    static const char *const cpu_max[] = {
        "",         "\n",        "max 100000\n", "max",      "garbage",
        "-1 100000", "0 100000", "150000",       "150000 0", "150000 max",
        "1x 2",     "99999999999999999999 100000",
    };

    (void)state;
    for (size_t i = 0; i < sizeof cpu_max / sizeof *cpu_max; i++)
        assert_int_equal(cgroup_parse_cpu_max(cpu_max[i]), CGROUP_UNLIMITED);
    assert_int_equal(cgroup_parse_quota("-1\n", "100000\n"), CGROUP_UNLIMITED);
    assert_int_equal(cgroup_parse_quota("", ""), CGROUP_UNLIMITED);
    assert_int_equal(cgroup_parse_quota("100000", "0"), CGROUP_UNLIMITED);
    assert_int_equal(cgroup_parse_quota("100000", "x"), CGROUP_UNLIMITED);
}

static void memory_is_a_number_or_no_limit(void **state)
{
    (void)state;
    assert_int_equal(cgroup_parse_bytes("536870912\n"), 536870912);
    assert_int_equal(cgroup_parse_bytes("9223372036854771712\n"),
                     9223372036854771712);
    assert_int_equal(cgroup_parse_bytes("max\n"), CGROUP_UNLIMITED);
    assert_int_equal(cgroup_parse_bytes("-1\n"), CGROUP_UNLIMITED);
    assert_int_equal(cgroup_parse_bytes("18446744073709551615\n"),
                     CGROUP_UNLIMITED);
    assert_int_equal(cgroup_parse_bytes("12kB\n"), CGROUP_UNLIMITED);
    assert_int_equal(cgroup_parse_bytes(""), CGROUP_UNLIMITED);
}

static void the_group_is_found_by_controller(void **state)
{
    static const char text[] = "12:cpuset:/sets\n"
                               "4:cpu,cpuacct:/docker/abc\n"
                               "3:memory:/m:x\n"
                               "1:name=systemd:/s\n"
                               "garbage\n"
                               "0::/user.slice/a.scope\n";
    char path[32];

    (void)state;
    assert_true(cgroup_parse_path(text, "cpu", path, sizeof path));
    assert_string_equal(path, "/docker/abc");
    assert_true(cgroup_parse_path(text, "cpuacct", path, sizeof path));
    assert_string_equal(path, "/docker/abc");
    assert_true(cgroup_parse_path(text, "memory", path, sizeof path));
    assert_string_equal(path, "/m:x");
    assert_true(cgroup_parse_path(text, "", path, sizeof path));
    assert_string_equal(path, "/user.slice/a.scope");
    assert_false(cgroup_parse_path(text, "acct", path, sizeof path));
    assert_false(cgroup_parse_path(text, "pids", path, sizeof path));
    assert_false(cgroup_parse_path(text, "cpu", path, 11));
    assert_true(cgroup_parse_path(text, "cpu", path, 12));
    assert_false(cgroup_parse_path("", "", path, sizeof path));
    assert_false(cgroup_parse_path("0::", "", path, sizeof path));
    assert_false(cgroup_parse_path("0::up", "", path, sizeof path));
    assert_false(cgroup_parse_path("4:cpu\n0", "cpu", path, sizeof path));
}

static void a_machine_without_groups_has_no_limit(void **state)
{
    (void)state;
    assert_int_equal(cgroup_cpus(root), CGROUP_UNLIMITED);
    assert_int_equal(cgroup_memory_bytes(root), CGROUP_UNLIMITED);
}

static void the_least_of_the_group_and_those_above_counts(void **state)
{
    (void)state;
    write_file("/proc/self/cgroup", "0::/a.slice/b.scope\n");
    write_file("/sys/fs/cgroup/a.slice/b.scope/cpu.max", "800000 100000\n");
    write_file("/sys/fs/cgroup/a.slice/b.scope/memory.max", "max\n");
    assert_int_equal(cgroup_cpus(root), 8);
    assert_int_equal(cgroup_memory_bytes(root), CGROUP_UNLIMITED);

    write_file("/sys/fs/cgroup/a.slice/cpu.max", "250000 100000\n");
    write_file("/sys/fs/cgroup/a.slice/memory.max", "1000000000\n");
    write_file("/sys/fs/cgroup/a.slice/c.scope/cpu.max", "100000 100000\n");
    assert_int_equal(cgroup_cpus(root), 3);
    assert_int_equal(cgroup_memory_bytes(root), 1000000000);

    write_file("/sys/fs/cgroup/a.slice/b.scope/memory.high", "700000000\n");
    assert_int_equal(cgroup_memory_bytes(root), 700000000);
}

static void a_container_finds_its_group_at_the_top_of_the_mount(void **state)
{
    (void)state;
    write_file("/proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n"
                                    "3:memory:/docker/abc\n");
    write_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
    write_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    write_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
    assert_int_equal(cgroup_cpus(root), 1);
    assert_int_equal(cgroup_memory_bytes(root), 268435456);
}

static void version_one_and_two_side_by_side_both_count(void **state)
{
    (void)state;
    write_file("/proc/self/cgroup", "3:cpu:/one\n0::/two\n");
    write_file("/sys/fs/cgroup/cpu/one/cpu.cfs_quota_us", "300000\n");
    write_file("/sys/fs/cgroup/cpu/one/cpu.cfs_period_us", "100000\n");
    write_file("/sys/fs/cgroup/unified/two/cpu.max", "500000 100000\n");
    assert_int_equal(cgroup_cpus(root), 3);
    write_file("/sys/fs/cgroup/unified/two/cpu.max", "200000 100000\n");
    assert_int_equal(cgroup_cpus(root), 2);
}

static void this_machine_gives_at_least_a_cpu_and_some_memory(void **state)
{
    int64_t machine = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);

    (void)state;
    assert_in_range((uint64_t)cpus_allowed(), 1,
                    (uint64_t)sysconf(_SC_NPROCESSORS_CONF));
    assert_in_range((uint64_t)memory_allowed(), 1, (uint64_t)machine);
}

static void a_process_bound_to_one_cpu_has_one(void **state)
{
    cpu_set_t before, one;
    size_t cpu = 0;

    (void)state;
    if (sched_getaffinity(0, sizeof before, &before) != 0)
        skip(); /* more CPUs than a cpu_set_t has */
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(cpus_allowed(), 1);
    sched_setaffinity(0, sizeof before, &before);
}

#define ON_A_MACHINE_OF_FILES(test) \
    cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quota_is_rounded_up_to_whole_cpus),
        cmocka_unit_test(what_is_no_quota_is_no_limit),
        cmocka_unit_test(memory_is_a_number_or_no_limit),
        cmocka_unit_test(the_group_is_found_by_controller),
        ON_A_MACHINE_OF_FILES(a_machine_without_groups_has_no_limit),
        ON_A_MACHINE_OF_FILES(the_least_of_the_group_and_those_above_counts),
        ON_A_MACHINE_OF_FILES(
            a_container_finds_its_group_at_the_top_of_the_mount),
        ON_A_MACHINE_OF_FILES(version_one_and_two_side_by_side_both_count),
        cmocka_unit_test(this_machine_gives_at_least_a_cpu_and_some_memory),
        cmocka_unit_test(a_process_bound_to_one_cpu_has_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
