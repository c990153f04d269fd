/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of a record's header, by the numbers that Python knows them by. */
#ifndef ROCKETMQ_STORE_FIELDS_H
#define ROCKETMQ_STORE_FIELDS_H

#include "kernel.h"

typedef struct {
    const char *name;
    int at, width, hosts_before;
} Field;

static const Field fields[] = {
#define FIELD(name, at, width, hosts_before) {#name, at, width, hosts_before},
    HEADER_FIELDS(FIELD)
#undef FIELD
};
#define FIELD_COUNT ((int64_t)(sizeof(fields) / sizeof(*fields)))

/* Read a field of a record whose header is inside the data. Its flag may have changed since that was
 * checked: a field that is then past the data is 0. */
static inline int64_t read_field(bytes record, bytes end, const Field *field)
{
    int32_t before = field->hosts_before, sys_flag = before ? read_i4(record + AT_SYS_FLAG) : 0;
    bytes from = record + field->at + more_host_bytes(before == 1 ? sys_flag & BORNHOST_V6_FLAG : sys_flag);
    if (end - from < field->width) return 0;
    return field->width == 8 ? read_i8(from) : read_i4(from);
}

#endif
