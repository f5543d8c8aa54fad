/* netconsole.h - what every probe includes.
 *
 * The collector defines these names before the source, from the manifest and the kernel's BTF:
 *   NC_ROWS_<table>  the bound of a table
 *   NC_CPUS          how many CPUs the machine can have
 *   NC_EVENTS        1 when the manifest has events
 *   NC_RING          1 when the kernel has ring buffers (5.8); else events leave by a perf buffer
 *   NC_DIRECT        1 when the programs are loaded as BTF-typed raw tracepoints; 0 when they are plain ones
 *   NC_PLAIN         1 when all reads shall be calls of a helper, as tests ask for
 *   NC_CAST          1 when programs load from any address by themselves (bpf_rdonly_cast); 0 when they call a helper
 *   HAVE_..., NARGS_...  what this kernel has (docs/reference/probes.md)
 *
 * Calling a helper is what costs: 20 to 50 ns each on machines that mitigate returns. Arithmetic costs next to nothing. On the way
 * that every packet takes, use array maps, whose look-up the kernel inlines, and direct loads.
 */
#ifndef NETCONSOLE_H
#define NETCONSOLE_H

#include "kernel_memory.h"
#include "config.h"
#include "accounting.h"
#include "breaker.h"
#include "row_share.h"
#include "histograms.h"
#include "packets.h"
#include "events.h"

#endif /* NETCONSOLE_H */
