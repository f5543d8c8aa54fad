/* empty_tracked - what it costs to call programs at the begin and at the end of nf_conntrack_in. */

#include "../../common/netconsole.h"

int nothing(void *ctx)
{
    return 0;
}
