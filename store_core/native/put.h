/* SPDX-License-Identifier: Apache-2.0 */
/* One record to put, before and when its place in the log is known. */
#ifndef ROCKETMQ_STORE_PUT_H
#define ROCKETMQ_STORE_PUT_H

#include "kernel.h"

#define MOST_PIECES 128 /* names and values of properties */

typedef struct {
    Piece topic, body, born_host, store_host; /* the topic with its length before it */
    Piece pieces[MOST_PIECES];                /* name, value, name, … */
    int piece_count;                          /* 0: the properties are in `raw` */
    Piece raw;
    int32_t magic_code, body_crc, queue_id, flag, sys_flag, reconsume_times;
    int64_t born_timestamp, prepared_transaction_offset;
} Put;

/* Return the bytes of the record; -1 if its numbers or lengths do not fit their fields. */
int64_t put_bytes(const Put *put);

/* Write the record, with offsets and store time 0; return where its properties begin. */
uint8_t *write_put(const Put *put, uint8_t *record);

/* Return whether a mark is anywhere in some bytes. */
int holds(bytes at, int64_t count, Piece mark);

/* Fill in offsets and store time of a record; return 0 if it is too short for them. */
int patch_put(uint8_t *record, int64_t size, int64_t queue_offset, int64_t commit_log_offset, int64_t store_timestamp);

#endif
