/* calls - counts getpgid(2) by its argument, of the processes that are asked for: exact, cheap to cause, in nobody's way.
 *
 * PID stands for the number of the process that runs the test, so that it knows its own maps and programs.
 */

#include "../../common/netconsole.h"

#ifndef SYSCALL
#define SYSCALL 121     /* getpgid on x86-64 */
#endif

struct call_key {
    u64 argument;
    char name[4];
    u32 parity;
};
struct call_value {
    u64 count;
    u64 weight;
    u64 highest;
};
BPF_TABLE("percpu_hash", struct call_key, struct call_value, calls_PID, NC_ROWS_calls);

struct size_key {
    u32 parity;
    u32 slot;
};
BPF_TABLE("percpu_hash", struct size_key, struct nc_bucket, sizes_PID, NC_ROWS_sizes);

struct call_event {
    u64 mono_ns;
    u64 argument;
    u32 cpu;
    u32 pad;
    u64 stack[4];
};

static inline int wanted(struct nc_config *config, u64 number)
{
    return number == SYSCALL && bpf_get_current_pid_tgid() >> 32 == nc_knob(config, pid);
}

static inline void account(struct nc_config *config, struct call_key *key)
{
    struct call_value *value, none = {};
    struct size_key size = { .parity = key->parity, .slot = nc_slot(key->argument) };
    struct nc_bucket empty = {};

    nc_count(0);
    value = calls_PID.lookup_or_try_init(key, &none);
    if (value) {
        nc_add(&value->count, 1);
        nc_add(&value->weight, key->argument);
        if (key->argument > value->highest)
            value->highest = key->argument;
    } else {
        nc_ledger_add(NC_MAP_FULL);
    }
    nc_bucket_add(sizes_PID.lookup_or_try_init(&size, &empty), key->argument);
}

int entered_PID(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct pt_regs *registers = NC_ARG(0);
    struct call_key key = { .name = { 'g', 'e', 't', 0 } };

    if (!config || !wanted(config, ctx->args[1]))
        return 0;
    key.argument = NC_READ(registers, di);
    key.parity = key.argument & 1;
    account(config, &key);
    if (config->flags & NC_F_DETAILS) {
        struct call_event event = { .argument = key.argument };
        event.mono_ns = bpf_ktime_get_ns();
        event.cpu = bpf_get_smp_processor_id();
        if (nc_event_allowed(config, event.mono_ns)) {
            nc_stack(ctx, event.stack, sizeof(event.stack));
            nc_submit(ctx, &event, sizeof(event));
        }
    }
    return 0;
}
