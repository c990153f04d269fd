/* SPDX-License-Identifier: Apache-2.0 */
/* Python's side of what a log has: records, their places and fields, CRCs. */
#include "arguments.h"
#include "fields.h"
#include "kernel.h"
#include "select.h"
#include "module.h"

/* ---- crc32_ranges(data, starts, ends, found) ---- */

static int64_t fill_crcs(bytes data, int64_t length, const int64_t *starts, const int64_t *ends, int64_t rows,
                         uint32_t *found)
{
    for (int64_t row = 0; row < rows; row++) {
        if (starts[row] < 0 || ends[row] < starts[row] || ends[row] > length) return row;
        found[row] = stored_crc32(data + starts[row], ends[row] - starts[row]);
    }
    return rows;
}

PyObject *py_crc32_ranges(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    bytes data;
    int64_t *starts, *ends, rows, done = -1;
    uint32_t *found;
    if (has_arguments(given, 4) && (data = get(&buffers, args[0], -1, 1, PyBUF_SIMPLE)) &&
        (starts = get(&buffers, args[1], -1, 8, PyBUF_SIMPLE)) &&
        (ends = get(&buffers, args[2], buffers.views[1].len, 8, PyBUF_SIMPLE)) &&
        (found = get(&buffers, args[3], buffers.views[1].len / 2, 4, PyBUF_WRITABLE))) {
        rows = buffers.views[1].len / 8;
        WITHOUT_GIL(rows, buffers.views[0].len,
                    done = fill_crcs(data, buffers.views[0].len, starts, ends, rows, found));
        if (done < rows) PyErr_Format(PyExc_ValueError, "range %lld is not inside the data", (long long)done);
        else return nothing(&buffers, 1);
    }
    return nothing(&buffers, 0);
}

/* ---- walk_records(data, start, stop, max_rows, max_bytes, starts) ---- */

PyObject *py_walk_records(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    bytes data;
    int64_t start, stop, max_rows, max_bytes, *starts;
    PyObject *result = NULL;
    if (has_arguments(given, 6) && (data = get(&buffers, args[0], -1, 1, PyBUF_SIMPLE)) && get_int64(args[1], &start) &&
        get_int64(args[2], &stop) && get_int64(args[3], &max_rows) && get_int64(args[4], &max_bytes) &&
        (starts = get(&buffers, args[5], -1, 8, PyBUF_WRITABLE))) {
        int64_t room = buffers.views[1].len / 8;
        if (start < 0 || stop < 0 || max_bytes < 0) {
            PyErr_SetString(PyExc_ValueError, "a walk starts and stops inside the data");
        } else {
            Walk walk;
            int64_t rows = max_rows < room ? max_rows : room;
            WITHOUT_GIL(rows, 0, walk = walk_records(data, buffers.views[0].len, start, stop, rows, max_bytes, starts));
            result = Py_BuildValue("LLii", (long long)walk.count, (long long)walk.stop, walk.is_failed, walk.is_blank);
        }
    }
    release(&buffers);
    return result;
}

/* ---- place_records(data, base offset or offsets, position, parts, ok, total_size, sys_flag) ---- */

typedef struct {
    bytes data;
    int64_t length, base, rows;
    const int64_t *bases, *position; /* bases: NULL: `base` in every row */
    int64_t *parts;
    uint8_t *ok;
    int32_t *total_size, *sys_flag; /* as they were checked: others may write the data */
} Placing;

/* Return whether the whole header is inside the data: one that is not is read as zeros. */
static int has_header(bytes data, int64_t length, int64_t at)
{
    if (at < 0 || at > length - HEADER_BYTES) return 0;
    return at + HEADER_BYTES + more_host_bytes(read_i4(data + at + AT_SYS_FLAG)) <= length;
}

static void place_all(Placing *p)
{
    for (int64_t row = 0; row < p->rows; row++) {
        int64_t at = p->position[row], ahead = row + 8 < p->rows ? p->position[row + 8] : 0;
        if (ahead >= 192) prefetch(p->data, p->length, ahead - 192, 256); /* the properties before it, too */
        int is_there = has_header(p->data, p->length, at);
        p->total_size[row] = is_there ? read_i4(p->data + at) : 0;
        p->sys_flag[row] = is_there ? read_i4(p->data + at + AT_SYS_FLAG) : 0;
        /* The sum may wrap: then no record says so. */
        int64_t own = (int64_t)((uint64_t)(p->bases ? p->bases[row] : p->base) + (uint64_t)at);
        Place place = {at, 0, at, 0, at, 0};
        p->ok[row] =
            is_there && place_record(p->data, p->length, at, own, p->total_size[row], p->sys_flag[row], &place);
        const int64_t found[] = {place.body,        place.body_bytes, place.topic,
                                 place.topic_bytes, place.properties, place.properties_bytes};
        for (int part = 0; part < 6; part++) p->parts[part * p->rows + row] = found[part];
    }
}

PyObject *py_place_records(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Placing p = {0};
    if (has_arguments(given, 7) && (p.data = get(&buffers, args[0], -1, 1, PyBUF_SIMPLE)) &&
        (p.position = get(&buffers, args[2], -1, 8, PyBUF_SIMPLE))) {
        int64_t rows = p.rows = buffers.views[1].len / 8;
        p.length = buffers.views[0].len;
        if ((p.parts = get(&buffers, args[3], 48 * rows, 8, PyBUF_WRITABLE)) &&
            (p.ok = get(&buffers, args[4], rows, 1, PyBUF_WRITABLE)) &&
            (p.total_size = get(&buffers, args[5], 4 * rows, 4, PyBUF_WRITABLE)) &&
            (p.sys_flag = get(&buffers, args[6], 4 * rows, 4, PyBUF_WRITABLE)) &&
            (PyLong_Check(args[1]) ? get_int64(args[1], &p.base)
                                   : !!(p.bases = get(&buffers, args[1], 8 * rows, 8, PyBUF_SIMPLE)))) {
            WITHOUT_GIL(rows, 0, place_all(&p));
            return nothing(&buffers, 1);
        }
    }
    return nothing(&buffers, 0);
}

/* ---- header_field(data, position, field, found) ---- */

static void fill_field(bytes data, int64_t length, const int64_t *position, int64_t rows, const Field *field,
                       void *found)
{
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = position[row];
        if (row + 8 < rows) prefetch(data, length, position[row + 8], 1);
        int64_t value = has_header(data, length, at) ? read_field(data + at, data + length, field) : 0;
        if (field->width == 8) ((int64_t *)found)[row] = value;
        else ((int32_t *)found)[row] = (int32_t)value;
    }
}

PyObject *py_header_field(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    bytes data;
    int64_t field, *position;
    void *found;
    if (has_arguments(given, 4) && (data = get(&buffers, args[0], -1, 1, PyBUF_SIMPLE)) &&
        (position = get(&buffers, args[1], -1, 8, PyBUF_SIMPLE)) && get_int64(args[2], &field)) {
        if (field < 0 || field >= FIELD_COUNT) {
            PyErr_SetString(PyExc_ValueError, "no such field");
        } else if ((found = get(&buffers, args[3], (int64_t)buffers.views[1].len / 8 * fields[field].width,
                                fields[field].width, PyBUF_WRITABLE))) {
            int64_t rows = buffers.views[1].len / 8;
            WITHOUT_GIL(rows, 0, fill_field(data, buffers.views[0].len, position, rows, fields + field, found));
            return nothing(&buffers, 1);
        }
    }
    return nothing(&buffers, 0);
}

/* ---- select(data, position, parts, without_flags, ranges, topics, keep) ---- */

static int are_fields(const int64_t *ranges, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (ranges[3 * i] < 0 || ranges[3 * i] >= FIELD_COUNT) return 0;
    return 1;
}

PyObject *py_select(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Selection s = {0};
    Name topics[MOST_NAMES];
    int64_t flags;
    if (has_arguments(given, 7) && get_records(&buffers, args, &s.in) && get_int64(args[3], &flags) &&
        (s.ranges = get(&buffers, args[4], -1, 8, PyBUF_SIMPLE)) && get_names(args[5], topics, &s.topic_count) &&
        (s.keep = get(&buffers, args[6], s.in.rows, 1, PyBUF_WRITABLE))) {
        s.without_flags = (int32_t)flags;
        s.range_count = buffers.views[3].len / 24;
        s.topics = topics;
        if (buffers.views[3].len % 24 || !are_fields(s.ranges, s.range_count)) {
            PyErr_SetString(PyExc_ValueError, "a range is a field, the least and the greatest value");
        } else {
            WITHOUT_GIL(s.in.rows, 0, select_records(&s));
            return nothing(&buffers, 1);
        }
    }
    return nothing(&buffers, 0);
}
