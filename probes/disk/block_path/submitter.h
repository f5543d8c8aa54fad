/* submitter.h - who asks a block device for something: the process of the task that runs. */
#ifndef NETCONSOLE_SUBMITTER_H
#define NETCONSOLE_SUBMITTER_H

#include "../../common/netconsole.h"

struct submitter {
    u64 process[2];     /* name of the process, not of its thread */
    u32 pid;            /* 0: the kernel's workers, which are many and take turns */
    u32 vm;             /* the pid again: the collector shows it as the VM */
};

#define PF_KTHREAD 0x00200000

static inline void submitted_by(struct submitter *by)
{
    struct task_struct *task = nc_pointer(bpf_get_current_task());
    struct task_struct *leader = NC_READ(task, group_leader);

    NC_COPY(by->process, sizeof(by->process), &leader->comm);
    by->pid = NC_READ(task, tgid);
    if (by->process[0] == NC_WORD('k', 'w', 'o', 'r', 'k', 'e', 'r', '/') && NC_READ(task, flags) & PF_KTHREAD) {
        by->process[0] = NC_WORD('k', 'w', 'o', 'r', 'k', 'e', 'r', 0);
        by->process[1] = by->pid = 0;
    }
    by->vm = by->pid;
}

#endif /* NETCONSOLE_SUBMITTER_H */
