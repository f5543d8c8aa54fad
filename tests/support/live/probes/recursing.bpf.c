/* recursing - a program that passes its own hook while it runs: the kernel skips that run. Exactly once a call.
 *
 * getpgid(2) makes `entered` write a line to the trace. That line runs `written`, which writes one itself.
 */

#include "../../common/netconsole.h"

#ifndef SYSCALL
#define SYSCALL 121     /* getpgid on x86-64 */
#endif

int entered_PID(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();

    if (config && ctx->args[1] == SYSCALL && bpf_get_current_pid_tgid() >> 32 == nc_knob(config, pid))
        bpf_trace_printk("netconsole: a test");
    return 0;
}

int written_PID(struct bpf_raw_tracepoint_args *ctx)
{
    nc_count(0);
    bpf_trace_printk("netconsole: a test");
    return 0;
}
