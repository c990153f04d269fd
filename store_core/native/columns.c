/* SPDX-License-Identifier: Apache-2.0 */
/* Columns of many records in one pass, straight into Arrow's buffers: codec/message_batch_codec.py
 * says what each is. A row that needs a rule which is not here is refused and left empty: text that
 * is not UTF-8, a time that Spark has not, more than MOST_PAIRS properties.
 */
#include <assert.h>

#include "columns.h"

#define MOST_HOST_TEXT 54 /* [8 groups of 4]:-2147483648 */
#define MOST_IPV4_TEXT 28
#define PADDING 64
#define ROWS_AHEAD 2
#define MOST_AHEAD 2048
#define FIRST_MS (-62135596800000) /* year 1 */
#define LAST_MS 253402300799999    /* year 9999 */

typedef struct {
    uint8_t stored[IPV6_HOST_BYTES], text[PADDING], hex[2 * IPV6_HOST_BYTES];
    int stored_bytes, text_bytes, hex_bytes;
} Host; /* the last one of its kind: usually the next row has it too */

static const int widths[] = {
#define NUMBER(name, width) width,
    NUMBER_COLUMNS(NUMBER)
#undef NUMBER
};
static uint16_t hex_pairs[256]; /* the two digits of each byte, in memory order */

void columns_init(void)
{
    const char *digits = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; byte++) {
        char pair[2] = {digits[byte >> 4], digits[byte & 15]};
        memcpy(hex_pairs + byte, pair, 2);
    }
}

static int is_wanted(const Decoding *d, int column) { return (int)(d->wanted >> column & 1); }

/* ---- the block ---- */

typedef struct {
    uint8_t *block;
    int64_t used;
} Space;

static uint8_t *reserve(Space *space, int64_t count)
{
    uint8_t *at = space->block ? space->block + space->used : NULL;
    space->used += (count + PADDING + 63) & ~(int64_t)63;
    return at;
}

static void reserve_text(Space *space, Column *column, int64_t rows, int64_t most_bytes)
{
    column->most_rows = rows;
    column->most_bytes = most_bytes;
    column->offsets = (int32_t *)reserve(space, 4 * (rows + 1));
    column->data = reserve(space, most_bytes);
}

static void reserve_list(Space *space, Column *column, int64_t rows)
{
    column->most_rows = rows;
    column->offsets = (int32_t *)reserve(space, 4 * (rows + 1));
}

static uint8_t *reserve_bits(Space *space, int64_t rows)
{
    uint8_t *bits = reserve(space, (rows + 7) / 8);
    if (bits) memset(bits, 0, (size_t)(rows + 7) / 8);
    return bits;
}

static int has_ipv6(const Decoding *d)
{
    for (int64_t row = 0; row < d->in.rows; row++)
        if (d->in.parts[0][row] - d->in.position[row] != HEADER_BYTES) return 1;
    return 0;
}

int64_t lay_out(Decoding *d, uint8_t *block)
{
    int64_t rows = d->in.rows, properties = sum(d->in.parts[5], rows);
    int64_t pairs = (properties + rows) / 4 + 1; /* of one byte each, the last not closed */
    int64_t host = has_ipv6(d) ? MOST_HOST_TEXT : MOST_IPV4_TEXT;
    int64_t id = 2 * (8 + (host == MOST_HOST_TEXT ? IPV6_HOST_BYTES : IPV4_HOST_BYTES));
    const int64_t text_bytes[] = {sum(d->in.parts[3], rows), id * rows, host * rows, host * rows,
                                  sum(d->in.parts[1], rows), properties};
    Space space = {block, 0};
    Column *columns = d->columns;
    for (int i = 0; i < of_topic; i++)
        if (is_wanted(d, i)) columns[i].data = reserve(&space, rows * widths[i]);
    for (int i = of_topic; i <= of_properties_raw; i++)
        if (is_wanted(d, i)) {
            if (text_bytes[i - of_topic] > INT32_MAX) return -1;
            reserve_text(&space, columns + i, rows, text_bytes[i - of_topic]);
        }
    if (properties + rows > INT32_MAX) return -1;
    if (is_wanted(d, of_properties)) {
        reserve_list(&space, columns + of_properties, rows);
        reserve_text(&space, columns + of_names, pairs, properties);
        reserve_text(&space, columns + of_values, pairs, properties);
    }
    if (is_wanted(d, of_keys)) {
        reserve_list(&space, columns + of_keys, rows);
        columns[of_keys].valid = reserve_bits(&space, rows);
        reserve_text(&space, columns + of_words, (properties + rows) / 2 + 1, properties);
    }
    for (int i = of_first_value; i < of_first_value + d->name_count; i++) {
        reserve_text(&space, columns + i, rows, properties);
        columns[i].valid = reserve_bits(&space, rows);
    }
    d->refused = (int32_t *)reserve(&space, 4 * rows);
    return space.used;
}

/* ---- texts ---- */

static inline void add(Column *column, bytes from, int64_t count, bytes end)
{
    column->offsets[column->rows++] = (int32_t)column->used;
    copy_padded(column->data + column->used, from, count, end);
    column->used += count;
}

static inline void add_if_any(Column *column, bytes from, int64_t count, bytes end)
{
    int64_t row = column->rows;
    if (from) column->valid[row >> 3] |= (uint8_t)(1 << (row & 7));
    column->nulls += !from;
    add(column, from ? from : column->data, from ? count : 0, from ? end : column->data);
}

static inline void close_column(Column *column, int64_t end)
{
    assert(column->rows <= column->most_rows && column->used <= column->most_bytes);
    if (column->offsets) column->offsets[column->rows] = (int32_t)end;
}

static uint8_t *decimal(uint8_t *to, uint32_t value)
{
    uint8_t digits[10];
    int count = 0;
    do digits[count++] = (uint8_t)('0' + value % 10);
    while (value /= 10);
    while (count) *to++ = digits[--count];
    return to;
}

static uint8_t *ipv6(uint8_t *to, bytes address)
{
    *to++ = '[';
    for (int group = 0; group < 8; group++) {
        uint32_t value = (uint32_t)(address[2 * group] << 8 | address[2 * group + 1]);
        int shift = 12;
        while (shift && !(value >> shift)) shift -= 4;
        for (; shift >= 0; shift -= 4) *to++ = (uint8_t) "0123456789abcdef"[value >> shift & 15];
        *to++ = group < 7 ? ':' : ']';
    }
    return to;
}

static uint8_t *ipv4(uint8_t *to, bytes address)
{
    for (int octet = 0; octet < 4; octet++) {
        if (octet) *to++ = '.';
        to = decimal(to, address[octet]);
    }
    return to;
}

static void hex(uint8_t *to, bytes from, int count)
{
    for (int i = 0; i < count; i++) memcpy(to + 2 * i, hex_pairs + from[i], 2);
}

static void note_host(Host *host, bytes stored, int stored_bytes)
{
    static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF};
    if (host->stored_bytes == stored_bytes && are_same(host->stored, stored, stored_bytes)) return;
    memcpy(host->stored, stored, (size_t)stored_bytes);
    stored = host->stored;
    host->stored_bytes = stored_bytes;
    host->hex_bytes = 2 * stored_bytes;
    hex(host->hex, stored, stored_bytes);
    uint8_t *to = host->text;
    if (stored_bytes == IPV4_HOST_BYTES) to = ipv4(to, stored);
    else to = memcmp(stored, mapped, 12) ? ipv6(to, stored) : ipv4(to, stored + 12);
    int32_t port = read_i4(stored + stored_bytes - 4);
    *to++ = ':';
    if (port < 0) *to++ = '-';
    to = decimal(to, port < 0 ? 0u - (uint32_t)port : (uint32_t)port);
    host->text_bytes = (int)(to - host->text);
}

static void add_host(Column *column, const Host *host)
{
    column->offsets[column->rows++] = (int32_t)column->used;
    memcpy(column->data + column->used, host->text, MOST_HOST_TEXT);
    column->used += host->text_bytes;
}

static void add_id(Column *column, const Host *host, bytes commit_log_offset)
{
    uint8_t *to = column->data + column->used;
    column->offsets[column->rows++] = (int32_t)column->used;
    memcpy(to, host->hex, sizeof host->hex);
    hex(to + host->hex_bytes, commit_log_offset, 8);
    column->used += host->hex_bytes + 16;
}

/* ---- properties ---- */

/* Retain the first place and the last value of each name. */
static int each_name_once(Pair *pairs, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        Pair pair = pairs[i];
        int same = 0;
        while (same < kept &&
               !(pairs[same].name_bytes == pair.name_bytes && are_same(pairs[same].name, pair.name, pair.name_bytes)))
            same++;
        if (same < kept) {
            pairs[same].value = pair.value;
            pairs[same].value_bytes = pair.value_bytes;
        } else {
            pairs[kept++] = pair;
        }
    }
    return kept;
}

static void add_words(Column *list, Column *words, const Pair *keys, bytes end)
{
    int64_t row = list->rows;
    list->offsets[list->rows++] = (int32_t)words->rows;
    list->nulls += !keys;
    if (!keys) return;
    list->valid[row >> 3] |= (uint8_t)(1 << (row & 7));
    bytes stop = keys->value + keys->value_bytes;
    for (bytes word = keys->value; word < stop;) {
        bytes space = memchr(word, KEY_SEPARATOR, (size_t)(stop - word));
        if (!space) space = stop;
        if (space > word) add(words, word, space - word, end);
        word = space + 1;
    }
}

static void add_pairs(Decoding *d, const Pair *pairs, int count, bytes end)
{
    Column *columns = d->columns;
    if (is_wanted(d, of_properties)) {
        Column *map = columns + of_properties;
        map->offsets[map->rows++] = (int32_t)columns[of_names].rows;
        for (int i = 0; i < count; i++) {
            add(columns + of_names, pairs[i].name, pairs[i].name_bytes, end);
            add(columns + of_values, pairs[i].value, pairs[i].value_bytes, end);
        }
    }
    if (is_wanted(d, of_keys)) {
        const Pair *keys = FIND(pairs, count, PROPERTY_KEYS);
        add_words(columns + of_keys, columns + of_words, keys, end);
    }
    for (int i = 0; i < d->name_count; i++) {
        const Pair *pair = find_last(pairs, count, d->names[i].at, d->names[i].count);
        add_if_any(columns + of_first_value + i, pair ? pair->value : NULL, pair ? pair->value_bytes : 0, end);
    }
}

/* ---- rows ---- */

static int fits(int64_t ms) { return ms >= FIRST_MS && ms <= LAST_MS; }

static inline void fill_numbers(Decoding *d, int64_t row, bytes record, bytes after_hosts, int64_t born, int64_t stored)
{
    Column *columns = d->columns;
#define PUT(name, type, value) \
    if (is_wanted(d, of_##name)) ((type *)columns[of_##name].data)[row] = (value)
    PUT(queue_id, int32_t, read_i4(record + AT_QUEUE_ID));
    PUT(queue_offset, int64_t, read_i8(record + AT_QUEUE_OFFSET));
    PUT(commit_log_offset, int64_t, read_i8(record + AT_COMMIT_LOG_OFFSET));
    PUT(store_size, int32_t, read_i4(record));
    PUT(flag, int32_t, read_i4(record + AT_FLAG));
    PUT(sys_flag, int32_t, read_i4(record + AT_SYS_FLAG));
    PUT(body_crc, int32_t, read_i4(record + AT_BODY_CRC));
    PUT(reconsume_times, int32_t, read_i4(after_hosts));
    PUT(prepared_transaction_offset, int64_t,
        read_i8(after_hosts + AT_PREPARED_TRANSACTION_OFFSET - AT_RECONSUME_TIMES));
    PUT(born_timestamp, int64_t, born * 1000);
    PUT(store_timestamp, int64_t, stored * 1000);
#undef PUT
}

/* Write a row without any text. */
static void refuse(Decoding *d, int64_t row)
{
    static const Pair none[1];
    Column *columns = d->columns;
    d->refused[d->refused_count++] = (int32_t)row;
    for (int i = 0; i < of_topic; i++)
        if (is_wanted(d, i)) memset(columns[i].data + row * widths[i], 0, (size_t)widths[i]);
    for (int i = of_topic; i <= of_properties_raw; i++)
        if (is_wanted(d, i)) add(columns + i, columns[i].data, 0, columns[i].data);
    add_pairs(d, none, 0, d->in.data);
}

typedef struct {
    Texts texts;
    Pair pairs[MOST_PAIRS];
    Host born_host, store_host;
} Row; /* what is made of one row, or retained of the one before */

static int fill_row(Decoding *d, int64_t row, Row *made)
{
    Column *columns = d->columns;
    const int64_t *const *parts = d->in.parts;
    bytes end = d->in.data + d->in.length, record = d->in.data + d->in.position[row];
    bytes body = d->in.data + parts[0][row], topic = d->in.data + parts[2][row];
    bytes properties = d->in.data + parts[4][row], texts_end = made->texts.properties + sizeof(made->texts.properties);
    int32_t sys_flag = read_i4(record + AT_SYS_FLAG);
    int born_bytes = sys_flag & BORNHOST_V6_FLAG ? IPV6_HOST_BYTES : IPV4_HOST_BYTES;
    int store_bytes = sys_flag & STOREHOST_V6_FLAG ? IPV6_HOST_BYTES : IPV4_HOST_BYTES;
    bytes store_time = record + AT_BORN_HOST + born_bytes, after_hosts = store_time + 8 + store_bytes;
    if (body - record != HEADER_BYTES + more_host_bytes(sys_flag)) return 0; /* changed meanwhile */
    int64_t born = read_i8(record + AT_BORN_TIMESTAMP), stored = read_i8(store_time);
    int needs_pairs = d->name_count || is_wanted(d, of_properties) || is_wanted(d, of_keys), count = 0;
    if (is_wanted(d, of_born_timestamp) && !fits(born)) return 0;
    if (is_wanted(d, of_store_timestamp) && !fits(stored)) return 0;
    if (is_wanted(d, of_topic) && !take_text(made->texts.topic, topic, parts[3][row], MOST_TOPIC, end)) return 0;
    if (needs_pairs) {
        if (!take_text(made->texts.properties, properties, parts[5][row], MOST_PROPERTIES, end)) return 0;
        count = split_pairs(made->texts.properties, parts[5][row], texts_end, made->pairs);
        if (count < 0) return 0;
        if (is_wanted(d, of_properties)) count = each_name_once(made->pairs, count);
    }
    fill_numbers(d, row, record, after_hosts, born, stored);
    if (is_wanted(d, of_topic)) add(columns + of_topic, made->texts.topic, parts[3][row], texts_end);
    if (is_wanted(d, of_born_host)) {
        note_host(&made->born_host, record + AT_BORN_HOST, born_bytes);
        add_host(columns + of_born_host, &made->born_host);
    }
    if (is_wanted(d, of_store_host) || is_wanted(d, of_message_id))
        note_host(&made->store_host, store_time + 8, store_bytes);
    if (is_wanted(d, of_store_host)) add_host(columns + of_store_host, &made->store_host);
    if (is_wanted(d, of_message_id)) add_id(columns + of_message_id, &made->store_host, record + AT_COMMIT_LOG_OFFSET);
    if (is_wanted(d, of_body)) {
        Column *bodies = columns + of_body;
        int64_t body_bytes = parts[1][row], ahead = body_bytes < MOST_AHEAD ? body_bytes : MOST_AHEAD;
        prefetch(bodies->data, bodies->most_bytes, bodies->used + MOST_AHEAD, ahead); /* writing waits, too */
        add(bodies, body, body_bytes, end);
    }
    if (is_wanted(d, of_properties_raw)) add(columns + of_properties_raw, properties, parts[5][row], end);
    if (needs_pairs) add_pairs(d, made->pairs, count, texts_end);
    return 1;
}

/* Ask for the bytes of a later row, which would otherwise wait for memory. */
static inline __attribute__((always_inline)) void prefetch_row(const Decoding *d, int64_t row)
{
    if (row >= d->in.rows) return;
    int64_t at = d->in.position[row], properties = d->in.parts[4][row], count = properties + d->in.parts[5][row] - at;
    prefetch(d->in.data, d->in.length, at, count < MOST_AHEAD ? count : MOST_AHEAD);
    if (count > MOST_AHEAD) prefetch(d->in.data, d->in.length, properties, d->in.parts[5][row]);
}

void fill_columns(Decoding *d)
{
    Row made;
    made.born_host.stored_bytes = made.store_host.stored_bytes = 0;
    for (int64_t row = 0; row < d->in.rows; row++) {
        prefetch_row(d, row + ROWS_AHEAD);
        if (!fill_row(d, row, &made)) refuse(d, row);
    }
    for (int i = of_topic; i < MOST_COLUMNS; i++) close_column(d->columns + i, d->columns[i].used);
    close_column(d->columns + of_properties, d->columns[of_names].rows);
    close_column(d->columns + of_keys, d->columns[of_words].rows);
}

/* ---- named properties alone ---- */

int64_t lay_out_values(Naming *n, uint8_t *block)
{
    Space space = {block, 0};
    int64_t all = sum(n->count, n->rows);
    if (all > INT32_MAX) return -1;
    for (int i = 0; i < n->name_count; i++) {
        reserve_text(&space, n->columns + i, n->rows, all);
        n->columns[i].valid = reserve_bits(&space, n->rows);
    }
    n->refused = (int32_t *)reserve(&space, 4 * n->rows);
    return space.used;
}

/* Copy a value, then check the copy: others may write the data meanwhile. */
static int add_value(Column *column, const Value *value, bytes end)
{
    int64_t before = column->used;
    add_if_any(column, value->at, value->count, end);
    return is_utf8(column->data + before, column->used - before);
}

static void make_last_null(Column *column)
{
    int64_t row = column->rows - 1;
    uint8_t bit = (uint8_t)(1 << (row & 7));
    if (column->valid[row >> 3] & bit) column->nulls++;
    column->valid[row >> 3] &= (uint8_t)~bit;
    column->used = column->offsets[row];
}

void fill_values(Naming *n)
{
    Value values[MOST_NAMES];
    bytes end = n->data + n->length;
    for (int64_t row = 0; row < n->rows; row++) {
        int is_good = 1;
        if (row + 8 < n->rows) __builtin_prefetch(n->data + n->start[row + 8]);
        find_values(n->data + n->start[row], n->count[row], end, n->names, n->name_count, values);
        for (int i = 0; i < n->name_count; i++) is_good &= add_value(n->columns + i, values + i, end);
        if (is_good) continue;
        n->refused[n->refused_count++] = (int32_t)row;
        for (int i = 0; i < n->name_count; i++) make_last_null(n->columns + i);
    }
    for (int i = 0; i < n->name_count; i++) close_column(n->columns + i, n->columns[i].used);
}
