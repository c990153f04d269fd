/* SPDX-License-Identifier: Apache-2.0 */
/* Where records start, and where the parts of each are: the rules of codec/record_frames.py. */
#include "kernel.h"

/* Walk by total sizes; only size and magic code are checked. */
Walk walk_records(bytes data, int64_t length, int64_t at, int64_t stop, int64_t max_rows, int64_t max_bytes,
                  int64_t *starts)
{
    Walk walk = {0, at, 0, 0};
    int64_t last = length - BLANK_RECORD_BYTES; /* fewer bytes are too few for a record */
    int64_t before = max_bytes < stop - at ? at + max_bytes : stop;
    while (at < before && at <= last && walk.count < max_rows) {
        int32_t size = read_i4(data + at), magic = read_i4(data + at + AT_MAGIC_CODE);
        int is_message = magic == MESSAGE_MAGIC_CODE || magic == MESSAGE_MAGIC_CODE_V2;
        if (!is_message || size < MIN_RECORD_BYTES || size > length - at) {
            walk.is_blank = magic == BLANK_MAGIC_CODE;
            walk.is_failed = !walk.is_blank;
            break;
        }
        starts[walk.count++] = at;
        at += size;
    }
    if (!walk.is_failed && !walk.is_blank) walk.is_failed = at > last && at < (stop < length ? stop : length);
    walk.stop = at;
    return walk;
}

int place_record(bytes data, int64_t length, int64_t at, int64_t own_offset, int32_t total_size, int32_t sys_flag,
                 Place *place)
{
    bytes record = data + at;
    int32_t magic = read_i4(record + AT_MAGIC_CODE);
    int is_wide = magic == MESSAGE_MAGIC_CODE_V2;
    if (!is_wide && magic != MESSAGE_MAGIC_CODE) return 0;
    if (read_i8(record + AT_COMMIT_LOG_OFFSET) != own_offset) return 0;
    int64_t end = at + total_size;
    int64_t body = at + HEADER_BYTES + more_host_bytes(sys_flag);
    if (end > length || body > end) return 0;
    int64_t body_bytes = read_i4(data + body - BODY_LENGTH_BYTES);
    int64_t topic = body + body_bytes + 1 + is_wide;
    if (body_bytes < 0 || topic + PROPERTIES_LENGTH_BYTES > end) return 0;
    int64_t topic_bytes = is_wide ? read_i2(data + topic - 2) : (int8_t)data[topic - 1];
    int64_t properties = topic + topic_bytes + PROPERTIES_LENGTH_BYTES;
    if (topic_bytes < 0 || properties > end) return 0;
    int64_t properties_bytes = read_i2(data + properties - PROPERTIES_LENGTH_BYTES);
    if (properties_bytes < 0 || properties + properties_bytes != end) return 0;
    *place = (Place){body, body_bytes, topic, topic_bytes, properties, properties_bytes};
    return 1;
}

int place_plain_record(bytes data, int64_t length, int64_t at, int32_t other_flags, Place *place)
{
    if (length - at < MIN_RECORD_BYTES) return 0;
    bytes record = data + at;
    int32_t sys_flag = read_i4(record + AT_SYS_FLAG);
    return !(sys_flag & other_flags) && read_i4(record + AT_MAGIC_CODE) == MESSAGE_MAGIC_CODE &&
           place_record(data, length, at, read_i8(record + AT_COMMIT_LOG_OFFSET), read_i4(record), sys_flag, place);
}

int are_inside(const Records *in)
{
    int64_t length = in->length;
    for (int64_t row = 0; row < in->rows; row++) {
        int64_t at = in->position[row], before = HEADER_BYTES;
        if (at < 0 || at > length) return 0;
        for (int part = 0; part < 6; part += 2) {
            int64_t start = in->parts[part][row], count = in->parts[part + 1][row];
            if (start < at || start > length || start - at < before || count < 0 || count > length - start) return 0;
            at = start;
            before = count;
        }
    }
    return 1;
}
