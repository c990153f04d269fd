/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of an index file, linked into the chains of their slots. */
#ifndef ROCKETMQ_STORE_INDEX_H
#define ROCKETMQ_STORE_INDEX_H

#include "kernel.h"

typedef struct {
    int64_t rows, slot_count;
    uint8_t *slots; /* as stored */
    const int32_t *key_hash, *time_diff;
    const int64_t *commit_log_offset;
    int32_t first_number; /* of the first new entry */
    uint8_t *entries;     /* as stored */
    int64_t *slot;        /* of each entry, and what was in it before, as stored: to undo */
    uint8_t *held;
} Linking;

/* Return how many slots were empty before and are used now. */
int64_t link_entries(Linking *linking);

#endif
