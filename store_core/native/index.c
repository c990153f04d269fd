/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of an index file, as index/index_writer.py says; the caller has checked the hashes. */
#include "index.h"

#define SLOT_BYTES 4
#define AHEAD 16 /* slots are anywhere in 20 MB */

/* Return whether a slot names an entry of its own: any other number means that it is empty. */
static int is_entry(const Linking *l, int32_t number, int64_t row, int64_t slot)
{
    if (number <= 0 || number >= l->first_number + row) return 0;
    return number < l->first_number || l->slot[number - l->first_number] == slot;
}

int64_t link_entries(Linking *l)
{
    int64_t used = 0;
    for (int64_t row = 0; row < l->rows; row++) l->slot[row] = l->key_hash[row] % l->slot_count;
    for (int64_t row = 0; row < l->rows; row++) {
        if (row + AHEAD < l->rows) __builtin_prefetch(l->slots + SLOT_BYTES * l->slot[row + AHEAD], 1);
        int64_t slot = l->slot[row];
        uint8_t *at = l->slots + SLOT_BYTES * slot, *entry = l->entries + INDEX_ENTRY_BYTES * row;
        memcpy(l->held + SLOT_BYTES * row, at, SLOT_BYTES);
        int32_t previous = read_i4(at);
        if (!is_entry(l, previous, row, slot)) previous = 0;
        used += !previous;
        write_i4(entry, l->key_hash[row]);
        write_i8(entry + AT_ENTRY_COMMIT_LOG_OFFSET, l->commit_log_offset[row]);
        write_i4(entry + AT_ENTRY_TIME_DIFF_SECONDS, l->time_diff[row]);
        write_i4(entry + AT_ENTRY_PREVIOUS_ENTRY, previous);
        write_i4(at, (int32_t)(l->first_number + row));
    }
    return used;
}
