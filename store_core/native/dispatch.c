/* SPDX-License-Identifier: Apache-2.0 */
/* Tag hashes and index entries of many records in one pass: queue/dispatch_request.py and
 * index/index_entries.py say what each is. A row with text that is not UTF-8, or with more than
 * MOST_PAIRS properties, is refused: it has no hash and no entry here.
 */
#include "dispatch.h"
#include "properties.h"

#define FACTOR 31u          /* of String.hashCode */
#define FACTOR_8 0x94446F01u /* its eighth power */

/* Return the polynomial of eight bytes, the lowest first: neighbours join in wider and wider fields. */
static inline uint32_t word_hash(uint64_t word)
{
    uint64_t pairs = (word & 0x00FF00FF00FF00FFull) * 31 + (word >> 8 & 0x00FF00FF00FF00FFull);
    uint64_t fours = (pairs & 0x0000FFFF0000FFFFull) * (31 * 31) + (pairs >> 16 & 0x0000FFFF0000FFFFull);
    return (uint32_t)((fours & 0xFFFFFFFFull) * (31 * 31 * 31 * 31) + (fours >> 32));
}

static uint32_t hash_ascii(uint32_t hash, bytes at, int64_t count)
{
    for (; count >= 8; at += 8, count -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = hash * FACTOR_8 + word_hash(word);
    }
    for (; count > 0; at++, count--) hash = hash * FACTOR + *at;
    return hash;
}

/* Go on with String.hashCode over the UTF-16 units of valid UTF-8. */
static uint32_t hash_more(uint32_t hash, bytes at, int64_t count)
{
    if (is_ascii(at, count)) return hash_ascii(hash, at, count);
    for (bytes end = at + count; at < end;) {
        uint32_t lead = *at++;
        int more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
        uint32_t character = more ? lead & (0x3Fu >> more) : lead;
        for (; more && at < end; more--) character = character << 6 | (*at++ & 0x3F);
        if (character >= 0x10000) {
            hash = hash * FACTOR + (0xD7C0 + (character >> 10));
            character = 0xDC00 + (character & 0x3FF);
        }
        hash = hash * FACTOR + character;
    }
    return hash;
}

typedef struct {
    Texts texts;
    Pair pairs[MOST_PAIRS];
    int64_t topic_bytes; /* of the topic in texts: usually the next row has it too; -1: it is not UTF-8 */
    uint32_t topic_hash;
} Row;

static void note_topic(Row *row, bytes at, int64_t count, bytes end)
{
    if (row->topic_bytes == count && !memcmp(row->texts.topic, at, (size_t)count)) return;
    row->topic_bytes = take_text(row->texts.topic, at, count, MOST_TOPIC, end) ? count : -1;
    if (row->topic_bytes >= 0) row->topic_hash = hash_more(0, row->texts.topic, count);
}

static int add_entry(Dispatch *d, int64_t row, uint32_t before, bytes key, int64_t count, int is_tag)
{
    if (d->entries == d->most_entries) return 0;
    int32_t hash = (int32_t)hash_more(before, key, count);
    /* Java's absolute value of the lowest number is that number, which RocketMQ makes 0. */
    d->entry_hash[d->entries] = hash == INT32_MIN ? 0 : hash < 0 ? -hash : hash;
    d->entry_row[d->entries] = (int32_t)row;
    d->entry_is_tag[d->entries++] = (uint8_t)is_tag;
    return 1;
}

static int is_indexed(int32_t sys_flag) { return (sys_flag & TRANSACTION_MASK) != TRANSACTION_ROLLBACK_TYPE; }

/* Values that a record lacks are NULL. */
static int add_entries(Dispatch *d, int64_t row, uint32_t topic_hash, const Pair *unique, const Pair *keys, const Pair *tags)
{
    uint32_t before = topic_hash * FACTOR + '#';
    if (unique && !add_entry(d, row, before, unique->value, unique->value_bytes, 0)) return 0;
    bytes word = keys ? keys->value : NULL, stop = keys ? word + keys->value_bytes : NULL;
    while (word < stop) {
        bytes space = memchr(word, KEY_SEPARATOR, (size_t)(stop - word));
        if (!space) space = stop;
        if (space > word && !add_entry(d, row, before, word, space - word, 0)) return 0;
        word = space + 1;
    }
    uint32_t typed = (before * FACTOR + TAG_TYPE) * FACTOR + '#';
    return !tags || add_entry(d, row, typed, tags->value, tags->value_bytes, 1);
}

int dispatch_records(Dispatch *d)
{
    Row made;
    bytes end = d->in.data + d->in.length, texts_end = made.texts.properties + sizeof(made.texts.properties);
    made.topic_bytes = -1;
    for (int64_t row = 0; row < d->in.rows; row++) {
        int64_t properties_bytes = d->in.parts[5][row];
        bytes record = d->in.data + d->in.position[row], properties = d->in.data + d->in.parts[4][row];
        if (row + 8 < d->in.rows) __builtin_prefetch(d->in.data + d->in.position[row + 8]);
        note_topic(&made, d->in.data + d->in.parts[2][row], d->in.parts[3][row], end);
        int count = -1;
        if (made.topic_bytes >= 0 && take_text(made.texts.properties, properties, properties_bytes, MOST_PROPERTIES, end))
            count = split_pairs(made.texts.properties, properties_bytes, texts_end, made.pairs);
        d->tags_code[row] = 0;
        d->kinds[row] = (uint8_t)(count < 0 ? IS_REFUSED : 0);
        if (count < 0) continue;
        const Pair *tags = FIND(made.pairs, count, PROPERTY_TAGS);
        if (tags) d->tags_code[row] = (int32_t)hash_more(0, tags->value, tags->value_bytes);
        if (FIND(made.pairs, count, PROPERTY_INNER_NUM)) d->kinds[row] |= HAS_INNER_NUM;
        if (FIND(made.pairs, count, PROPERTY_INNER_MULTI_DISPATCH)) d->kinds[row] |= HAS_FURTHER_QUEUES;
        if (!is_indexed(read_i4(record + AT_SYS_FLAG))) continue;
        const Pair *unique = FIND(made.pairs, count, PROPERTY_UNIQ_KEY), *keys = FIND(made.pairs, count, PROPERTY_KEYS);
        if (!add_entries(d, row, made.topic_hash, unique, keys, tags)) return 0;
    }
    return 1;
}

/* Make a row's value a pair, NULL if the row has none; return 0 if it is not UTF-8, -1 if it is not
 * inside the column. */
static int take_value(const Text *text, int64_t row, Pair *pair, const Pair **found)
{
    *found = NULL;
    if (is_null(text, row)) return 1;
    Piece value = piece(text, row);
    if (value.count < 0) return -1;
    *pair = (Pair){.value = value.at, .value_bytes = (int32_t)value.count};
    *found = pair;
    return is_utf8(value.at, value.count);
}

int64_t dispatch_known(Dispatch *d, const Known *known)
{
    const Text *texts[] = {&known->unique_key, &known->keys, &known->tags};
    for (int64_t row = 0; row < d->in.rows; row++) {
        Pair pairs[3];
        const Pair *found[3];
        int is_good = 1;
        for (int i = 0; i < 3; i++) {
            int taken = take_value(texts[i], row, &pairs[i], &found[i]);
            if (taken < 0) return row;
            is_good &= taken;
        }
        const Pair *tags = found[2];
        d->kinds[row] = (uint8_t)(is_good ? 0 : IS_REFUSED);
        d->tags_code[row] = is_good && tags ? (int32_t)hash_more(0, tags->value, tags->value_bytes) : 0;
        if (!is_good || !is_indexed(known->sys_flag[row])) continue;
        if (!add_entries(d, row, (uint32_t)known->topic_hash[row], found[0], found[1], tags)) return row;
    }
    return d->in.rows;
}

/* ---- distinct topics ---- */

#define MOST_PROBES 256 /* names that all have one hash would take the square of their number */

static int is_same(const Numbering *n, int64_t row, int64_t other)
{
    int64_t count = n->bytes_of[row];
    return count == n->bytes_of[other] && !memcmp(n->data + n->start[row], n->data + n->start[other], (size_t)count);
}

int64_t number_names(Numbering *n)
{
    int64_t mask = n->table_rows - 1, distinct = 0;
    for (int64_t row = 0; row < n->rows; row++) {
        if (row && is_same(n, row, row - 1)) {
            n->code[row] = n->code[row - 1];
            continue;
        }
        int64_t at = hash_ascii(0, n->data + n->start[row], n->bytes_of[row]) & mask;
        for (int probes = 0; n->table[at] >= 0 && !is_same(n, row, n->first_row[n->table[at]]); probes++) {
            if (probes == MOST_PROBES) return -1;
            at = (at + 1) & mask;
        }
        if (n->table[at] < 0) {
            n->first_row[distinct] = (int32_t)row;
            n->table[at] = (int32_t)distinct++;
        }
        n->code[row] = n->table[at];
    }
    return distinct;
}
