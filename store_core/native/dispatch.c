/* SPDX-License-Identifier: Apache-2.0 */
/* Tag hashes and index entries of many records in one pass: queue/dispatch_request.py and
 * index/index_entries.py say what each is. A row with text that is not UTF-8, or with more than
 * MOST_PAIRS properties, is refused: it has no hash and no entry here.
 */
#include "dispatch.h"
#include "properties.h"

#define FACTOR 31u           /* of String.hashCode */
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

/* Of repeated names the last counts; NULL: none has the name. */
typedef struct {
    const Pair *unique, *keys, *tags, *inner_num, *further_queues;
} Known;

#define IS(pair, text) ((pair)->name_bytes == sizeof(text) - 1 && !memcmp((pair)->name, text, sizeof(text) - 1))

static Known known_pairs(const Pair *pairs, int count)
{
    Known known = {0};
    for (const Pair *pair = pairs; pair < pairs + count; pair++) {
        if (IS(pair, PROPERTY_TAGS)) known.tags = pair;
        else if (IS(pair, PROPERTY_KEYS)) known.keys = pair;
        else if (IS(pair, PROPERTY_UNIQ_KEY)) known.unique = pair;
        else if (IS(pair, PROPERTY_INNER_NUM)) known.inner_num = pair;
        else if (IS(pair, PROPERTY_INNER_MULTI_DISPATCH)) known.further_queues = pair;
    }
    return known;
}

static int is_indexed(int32_t sys_flag) { return (sys_flag & TRANSACTION_MASK) != TRANSACTION_ROLLBACK_TYPE; }

static int add_entries(Dispatch *d, int64_t row, uint32_t topic_hash, const Known *known)
{
    uint32_t before = topic_hash * FACTOR + '#';
    const Pair *unique = known->unique, *keys = known->keys, *tags = known->tags;
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

/* ---- distinct topics ---- */

#define MOST_PROBES 256 /* names that all have one hash would take the square of their number */

static int is_same(const Numbering *n, int64_t row, int64_t other)
{
    int64_t count = n->bytes_of[row];
    return count == n->bytes_of[other] && !memcmp(n->data + n->start[row], n->data + n->start[other], (size_t)count);
}

/* Number the name of the next row; return -1 if too many names have its hash. */
static int32_t number_name(Numbering *n, int64_t row)
{
    if (row && is_same(n, row, row - 1)) return n->code[row] = n->code[row - 1];
    int64_t mask = n->table_rows - 1, at = hash_ascii(0, n->data + n->start[row], n->bytes_of[row]) & mask;
    for (int probes = 0; n->table[at] >= 0 && !is_same(n, row, n->first_row[n->table[at]]); probes++) {
        if (probes == MOST_PROBES) return -1;
        at = (at + 1) & mask;
    }
    if (n->table[at] < 0) {
        n->first_row[n->distinct] = (int32_t)row;
        n->table[at] = (int32_t)n->distinct++;
    }
    return n->code[row] = n->table[at];
}

int64_t number_names(Numbering *n)
{
    for (int64_t row = 0; row < n->rows; row++) {
        if (row + 8 < n->rows) __builtin_prefetch(n->data + n->start[row + 8]);
        if (number_name(n, row) < 0) return -1;
    }
    return n->distinct;
}

/* ---- rows ---- */

typedef struct {
    Texts texts;
    Pair pairs[MOST_PAIRS];
} Row;

/* Take the properties of a row; return 0 if there is no room for its entries. */
static int dispatch_row(Dispatch *d, int64_t row, Row *made, int64_t topic_hash, int32_t sys_flag, bytes properties,
                        int64_t count, bytes end)
{
    int pairs = -1;
    if (topic_hash >= 0 && take_text(made->texts.properties, properties, count, MOST_PROPERTIES, end))
        pairs = split_pairs(made->texts.properties, count, made->texts.properties + sizeof(made->texts.properties),
                            made->pairs);
    d->tags_code[row] = 0;
    d->kinds[row] = (uint8_t)(pairs < 0 ? IS_REFUSED : 0);
    if (pairs < 0) return 1;
    Known known = known_pairs(made->pairs, pairs);
    if (known.tags) d->tags_code[row] = (int32_t)hash_more(0, known.tags->value, known.tags->value_bytes);
    if (known.inner_num) d->kinds[row] |= HAS_INNER_NUM;
    if (known.further_queues) d->kinds[row] |= HAS_FURTHER_QUEUES;
    return !is_indexed(sys_flag) || add_entries(d, row, (uint32_t)topic_hash, &known);
}

/* Return the hash of a topic; -1 if it is not UTF-8. */
static int64_t hash_topic(Row *made, bytes at, int64_t count, bytes end)
{
    return take_text(made->texts.topic, at, count, MOST_TOPIC, end) ? (int64_t)hash_more(0, made->texts.topic, count)
                                                                    : -1;
}

int dispatch_records(const Records *in, Numbering *topics, int64_t *topic_hash, Dispatch *d)
{
    Row made;
    bytes end = in->data + in->length;
    for (int64_t row = 0; row < in->rows; row++) {
        int64_t before = topics->distinct;
        if (row + 8 < in->rows) {
            __builtin_prefetch(in->data + in->position[row + 8]);
            __builtin_prefetch(in->data + in->parts[4][row + 8]);
        }
        int32_t code = number_name(topics, row);
        if (code < 0) return -1;
        if (topics->distinct > before)
            topic_hash[code] = hash_topic(&made, in->data + in->parts[2][row], in->parts[3][row], end);
        int32_t sys_flag = read_i4(in->data + in->position[row] + AT_SYS_FLAG);
        if (!dispatch_row(d, row, &made, topic_hash[code], sys_flag, in->data + in->parts[4][row], in->parts[5][row],
                          end))
            return 0;
    }
    return 1;
}

int dispatch_properties(const PropertyRows *in, Dispatch *d)
{
    Row made;
    bytes end = in->data + in->length;
    for (int64_t row = 0; row < in->rows; row++) {
        int64_t start = in->offsets[row], stop = in->offsets[row + 1];
        if (start < 0 || stop < start || stop > in->length) return 0;
        if (!dispatch_row(d, row, &made, in->topic_hash[row], in->sys_flag[row], in->data + start, stop - start, end))
            return 0;
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

int64_t dispatch_values(const ValueRows *in, Dispatch *d)
{
    for (int64_t row = 0; row < in->rows; row++) {
        Pair pairs[3];
        Known known = {0};
        int unique = take_value(&in->unique_key, row, &pairs[0], &known.unique);
        int keys = take_value(&in->keys, row, &pairs[1], &known.keys);
        int tags = take_value(&in->tags, row, &pairs[2], &known.tags);
        if (unique < 0 || keys < 0 || tags < 0) return row;
        int is_good = unique && keys && tags;
        d->kinds[row] = (uint8_t)(is_good ? 0 : IS_REFUSED);
        d->tags_code[row] =
            is_good && known.tags ? (int32_t)hash_more(0, known.tags->value, known.tags->value_bytes) : 0;
        if (!is_good || !is_indexed(in->sys_flag[row])) continue;
        if (!add_entries(d, row, (uint32_t)in->topic_hash[row], &known)) return row;
    }
    return in->rows;
}
