/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's parts. None allocates, none keeps anything, none calls Python: module*.c do. */
#ifndef ROCKETMQ_STORE_KERNEL_H
#define ROCKETMQ_STORE_KERNEL_H

#include "bytes.h"
#include "layout.h"

#define BODY_LENGTH_BYTES (HEADER_BYTES - AT_BODY_LENGTH)

void crc32_init(void);
uint32_t stored_crc32(bytes at, int64_t count);

typedef struct {
    int64_t count, stop;
    int is_failed, is_blank;
} Walk;

Walk walk_records(bytes data, int64_t length, int64_t at, int64_t stop, int64_t max_rows, int64_t max_bytes,
                  int64_t *starts);

/* Positions in the data and lengths in bytes. */
typedef struct {
    int64_t body, body_bytes, topic, topic_bytes, properties, properties_bytes;
} Place;

/* Find the parts of the record at `at`, whose header is inside the data, from its size and flags;
 * return whether it is whole and at its own offset: else `place` stays as it is. */
int place_record(bytes data, int64_t length, int64_t at, int64_t own_offset, int32_t total_size, int32_t sys_flag,
                 Place *place);

/* Find the parts of a record of version 1 with none of some flags; return whether it is whole. */
int place_plain_record(bytes data, int64_t length, int64_t at, int32_t other_flags, Place *place);

/* Many records in one piece of data. */
typedef struct {
    bytes data;
    int64_t length, rows;
    const int64_t *position;
    const int64_t *parts[6]; /* as in Place: body, body_bytes, topic, … */
} Records;

static inline int64_t sum(const int64_t *values, int64_t count)
{
    int64_t all = 0;
    for (int64_t row = 0; row < count; row++) all += values[row];
    return all;
}

/* Return whether the parts of all records are inside the data: nothing else is read. */
int are_inside(const Records *records);

/* A column of bytes as Arrow has it. */
typedef struct {
    const int32_t *offsets; /* NULL: all rows are null */
    bytes data;
    int64_t length;       /* of data */
    const uint8_t *valid; /* a byte for each row; NULL: no row is null */
} Text;

static inline int is_null(const Text *text, int64_t row)
{
    return !text->offsets || (text->valid && !text->valid[row]);
}

/* Return a row's bytes; the count is -1 if they are not inside the column. */
static inline Piece piece(const Text *text, int64_t row)
{
    int64_t start = text->offsets[row], stop = text->offsets[row + 1];
    if (start < 0 || stop < start || stop > text->length) return (Piece){text->data, -1};
    return (Piece){text->data + start, stop - start};
}

/* Bytes that hosts take beyond those of IPv4. */
static inline int64_t more_host_bytes(int32_t sys_flag)
{
    int64_t more = IPV6_HOST_BYTES - IPV4_HOST_BYTES;
    return (sys_flag & BORNHOST_V6_FLAG ? more : 0) + (sys_flag & STOREHOST_V6_FLAG ? more : 0);
}

#endif
