/* SPDX-License-Identifier: Apache-2.0 */
/* Records encoded from columns, and completed when they are appended. */
#ifndef ROCKETMQ_STORE_ENCODE_H
#define ROCKETMQ_STORE_ENCODE_H

#include "kernel.h"

/* A column of bytes as Arrow has it. */
typedef struct {
    const int32_t *offsets;
    bytes data;
    int64_t length; /* of data */
} Text;

typedef struct {
    int64_t rows;
    Text topic, body, properties, tail, born_host, store_host; /* the tail ends the properties */
    const int32_t *queue_id, *flag, *sys_flag, *reconsume_times; /* NULL: 0 in every row */
    const int64_t *born_timestamp, *prepared_transaction_offset;
    uint8_t *block;
    int64_t block_bytes;
    int64_t *starts, *store_timestamp_at;
    int32_t *body_crc;
} Encoding;

/* Encode until a row is wrong or does not fit; return how many rows were encoded. */
int64_t encode_records(Encoding *encoding);

#endif
