/* SPDX-License-Identifier: Apache-2.0 */
/* What queues and index need to know of many records. */
#ifndef ROCKETMQ_STORE_DISPATCH_H
#define ROCKETMQ_STORE_DISPATCH_H

#include "kernel.h"

enum { IS_REFUSED = 1, HAS_INNER_NUM = 2, HAS_FURTHER_QUEUES = 4 };

typedef struct {
    int32_t *tags_code; /* hash of TAGS, 0 without */
    uint8_t *kinds;
    int32_t *entry_hash, *entry_row; /* entries of the index, in order */
    uint8_t *entry_is_tag;
    int64_t most_entries, entries;
} Dispatch;

/* Names, such as topics, of many records. */
typedef struct {
    bytes data;
    int64_t rows;
    const int64_t *start, *bytes_of;
    int32_t *code, *first_row;    /* of each row; of each code, as they appear */
    int32_t *table;               /* more than `rows`, a power of two; all -1 */
    int64_t table_rows, distinct; /* so far */
} Numbering;

/* Return how many distinct names there are; -1 if too many have one hash. */
int64_t number_names(Numbering *numbering);

/* Number the topics too, with room for a hash of each; return 0 if there are more than most_entries,
 * -1 if too many topics have one hash. */
int dispatch_records(const Records *records, Numbering *topics, int64_t *topic_hash, Dispatch *dispatch);

/* Properties of records that are about to be stored. */
typedef struct {
    int64_t rows, length; /* length of the data */
    const int32_t *offsets;
    bytes data;
    const uint32_t *topic_hash; /* of each row */
    const int32_t *sys_flag;
} PropertyRows;

/* As dispatch_records. */
int dispatch_properties(const PropertyRows *properties, Dispatch *dispatch);

/* Columns of records that are about to be stored. */
typedef struct {
    int64_t rows;
    const int32_t *topic_hash, *sys_flag; /* of each row */
    Text unique_key, keys, tags;
} ValueRows;

/* Dispatch until a row is wrong or has too many entries; return how many rows were dispatched. */
int64_t dispatch_values(const ValueRows *values, Dispatch *dispatch);

#endif
