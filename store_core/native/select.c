/* SPDX-License-Identifier: Apache-2.0 */
#include "select.h"

#include "fields.h"

static int is_any_of(bytes at, int64_t count, const Name *names, int name_count)
{
    for (int i = 0; i < name_count; i++)
        if (names[i].count == count && !memcmp(names[i].at, at, (size_t)count)) return 1;
    return 0;
}

static int is_inside(bytes record, bytes end, const int64_t *ranges, int64_t count)
{
    for (; count; count--, ranges += 3) {
        int64_t value = read_field(record, end, fields + ranges[0]);
        if (value < ranges[1] || value > ranges[2]) return 0;
    }
    return 1;
}

void select_records(Selection *s)
{
    const Records *in = &s->in;
    bytes end = in->data + in->length;
    for (int64_t row = 0; row < in->rows; row++) {
        bytes record = in->data + in->position[row], topic = in->data + in->parts[2][row];
        if (row + 8 < in->rows) {
            __builtin_prefetch(in->data + in->position[row + 8]);
            if (s->topic_count) __builtin_prefetch(in->data + in->parts[2][row + 8]);
        }
        s->keep[row] = !(read_i4(record + AT_SYS_FLAG) & s->without_flags) &&
                       is_inside(record, end, s->ranges, s->range_count) &&
                       (!s->topic_count || is_any_of(topic, in->parts[3][row], s->topics, s->topic_count));
    }
}

void select_by_value(const Naming *n, const Name *texts, int text_count, uint8_t *found)
{
    bytes end = n->data + n->length;
    for (int64_t row = 0; row < n->rows; row++) {
        Value value;
        if (row + 8 < n->rows) __builtin_prefetch(n->data + n->start[row + 8]);
        find_values(n->data + n->start[row], n->count[row], end, n->names, 1, &value);
        found[row] = value.at && is_any_of(value.at, value.count, texts, text_count);
    }
}
