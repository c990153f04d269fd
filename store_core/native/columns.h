/* SPDX-License-Identifier: Apache-2.0 */
/* The columns that the kernel fills, and where they lie in the one block of a batch. */
#ifndef ROCKETMQ_STORE_COLUMNS_H
#define ROCKETMQ_STORE_COLUMNS_H

#include "properties.h"

#define MOST_NAMES 32 /* properties asked for by name */

/* Numbers first, then texts; the names are those of table messages. */
/* clang-format off */
#define NUMBER_COLUMNS(COLUMN)                                                                   \
    COLUMN(queue_id, 4) COLUMN(queue_offset, 8) COLUMN(commit_log_offset, 8) COLUMN(store_size, 4) \
    COLUMN(flag, 4) COLUMN(sys_flag, 4) COLUMN(body_crc, 4) COLUMN(reconsume_times, 4)           \
    COLUMN(prepared_transaction_offset, 8) COLUMN(born_timestamp, 8) COLUMN(store_timestamp, 8)
#define TEXT_COLUMNS(COLUMN)                                                                     \
    COLUMN(topic) COLUMN(message_id) COLUMN(born_host) COLUMN(store_host) COLUMN(body)           \
    COLUMN(properties_raw)
/* clang-format on */

enum {
#define NUMBER(name, width) of_##name,
#define TEXT(name) of_##name,
    NUMBER_COLUMNS(NUMBER) TEXT_COLUMNS(TEXT) of_properties, /* the map, then its parts */
    of_names,
    of_values,
    of_keys, /* the list, then its words */
    of_words,
    of_first_value, /* of the first property asked for by name, and so on */
    MOST_COLUMNS = of_first_value + MOST_NAMES
#undef NUMBER
#undef TEXT
};

/* An Arrow array: numbers have no offsets, lists no data. */
typedef struct {
    int32_t *offsets;
    uint8_t *data, *valid;
    int64_t rows, used, nulls;
    int64_t most_rows, most_bytes; /* there is room for; asserted where assertions are on */
} Column;

/* What to decode, and into what. */
typedef struct {
    Records in;
    uint64_t wanted; /* bits by of_…, up to of_words */
    int name_count;
    Name names[MOST_NAMES];
    Column columns[MOST_COLUMNS];
    int32_t *refused; /* rows that are not decoded, ascending: all their columns are empty */
    int64_t refused_count;
} Decoding;

/* Some properties of many property strings, wherever these are. */
typedef struct {
    bytes data;
    int64_t length, rows;
    const int64_t *start, *count;
    int name_count;
    Name names[MOST_NAMES];
    Column columns[MOST_NAMES];
    int32_t *refused; /* rows, ascending, with a value that is not UTF-8: null in all columns */
    int64_t refused_count;
} Naming;

void columns_init(void);
/* Lay the wanted columns out in `block`, or only measure it if NULL; -1 if they exceed 2 GiB. */
int64_t lay_out(Decoding *decoding, uint8_t *block);
void fill_columns(Decoding *decoding);
/* As above, of the named properties. */
int64_t lay_out_values(Naming *naming, uint8_t *block);
void fill_values(Naming *naming);

#endif
