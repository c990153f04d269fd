/* SPDX-License-Identifier: Apache-2.0 */
/* Records encoded from columns, and completed when they are appended. */
#ifndef ROCKETMQ_STORE_ENCODE_H
#define ROCKETMQ_STORE_ENCODE_H

#include "kernel.h"

typedef struct {
    int64_t rows;
    Text topic, body, properties, tail, born_host, store_host;   /* the tail ends the properties */
    const int32_t *queue_id, *flag, *sys_flag, *reconsume_times; /* NULL: 0 in every row */
    const int64_t *born_timestamp, *prepared_transaction_offset;
    uint8_t *block;
    int64_t block_bytes;
    int64_t *starts, *store_timestamp_at;
    int32_t *body_crc;
} Encoding;

#define MOST_NAMED 7

/* Columns of one property each, to be joined to property strings. */
typedef struct {
    int64_t rows;
    int count;
    Piece names[MOST_NAMED];
    Text values[MOST_NAMED];
    int32_t *offsets; /* one more than there are rows */
    uint8_t *data;
    int64_t data_bytes;
} Joining;

/* Join until a row is wrong or does not fit; return how many rows were joined. */
int64_t join_properties(Joining *joining);

/* What is known of records only when they are appended. */
typedef struct {
    int64_t rows;
    uint8_t *block;
    int64_t block_bytes;
    const int64_t *starts, *store_timestamp_at, *queue_offset, *commit_log_offset;
    const int64_t *store_timestamps; /* NULL: the same for all */
    int64_t store_timestamp;
} Patching;

/* Patch until a row is not inside the block; return how many rows were patched. */
int64_t patch_records(const Patching *patching);

/* Encode until a row is wrong or does not fit; return how many rows were encoded. */
int64_t encode_records(Encoding *encoding);

#endif
