/* SPDX-License-Identifier: Apache-2.0 */
/* Python's side of the kernel: buffers in, buffers filled. Many rows are done without the GIL. */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "columns.h"
#include "dispatch.h"
#include "encode.h"
#include "fields.h"
#include "index.h"
#include "select.h"
#include "remoting.h"
#include "put.h"

#define ROWS_WITH_GIL 64 /* fewer rows, of few bytes, are done before another thread would have begun */
#define BYTES_WITH_GIL (1 << 15)
#define MOST_ARGUMENTS 24
#define INTERFACE 1 /* raised with _INTERFACE of __init__.py */

typedef struct {
    Py_buffer views[MOST_ARGUMENTS];
    int count;
} Buffers;

static void release(Buffers *buffers)
{
    while (buffers->count) PyBuffer_Release(&buffers->views[--buffers->count]);
}

static const int64_t nowhere[1]; /* stands for the buffer of an empty array */

/* Return a contiguous buffer of exactly `expected` bytes (any number if negative), for values of
 * `width` bytes; NULL: error. */
static void *get(Buffers *buffers, PyObject *object, int64_t expected, int width, int flags)
{
    Py_buffer *view = &buffers->views[buffers->count];
    if (PyObject_GetBuffer(object, view, flags) < 0) return NULL;
    buffers->count++;
    if (!view->len) view->buf = (void *)nowhere;
    if (expected >= 0 && view->len != expected)
        PyErr_Format(PyExc_ValueError, "expected an array of %lld bytes, not %zd", (long long)expected, view->len);
    else if ((uintptr_t)view->buf % (size_t)width || view->len % width)
        PyErr_Format(PyExc_ValueError, "expected an aligned array of numbers of %d bytes", width);
    else
        return view->buf;
    return NULL;
}

static int has_arguments(Py_ssize_t given, Py_ssize_t expected)
{
    if (given == expected) return 1;
    PyErr_Format(PyExc_TypeError, "expected %zd arguments, not %zd", expected, given);
    return 0;
}

static int get_int64(PyObject *object, int64_t *value)
{
    *value = PyLong_AsLongLong(object);
    return *value != -1 || !PyErr_Occurred();
}

#define WITHOUT_GIL(rows, size, work)                                      \
    do {                                                                  \
        int is_long = (rows) > ROWS_WITH_GIL || (size) > BYTES_WITH_GIL;     \
        PyThreadState *state = is_long ? PyEval_SaveThread() : NULL;         \
        work;                                                             \
        if (state) PyEval_RestoreThread(state);                           \
    } while (0)

static PyObject *nothing(Buffers *buffers, int is_done)
{
    release(buffers);
    if (!is_done) return NULL;
    Py_RETURN_NONE;
}

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

static PyObject *crc32_ranges(PyObject *module, PyObject *const *args, Py_ssize_t given)
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
        WITHOUT_GIL(rows, buffers.views[0].len, done = fill_crcs(data, buffers.views[0].len, starts, ends, rows, found));
        if (done < rows) PyErr_Format(PyExc_ValueError, "range %lld is not inside the data", (long long)done);
        else return nothing(&buffers, 1);
    }
    return nothing(&buffers, 0);
}

/* ---- walk_records(data, start, stop, max_rows, max_bytes, starts) ---- */

static PyObject *walk(PyObject *module, PyObject *const *args, Py_ssize_t given)
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
        int64_t at = p->position[row], ahead = row + 8 < p->rows ? p->position[row + 8] : -1;
        if (ahead >= 0 && ahead < p->length) __builtin_prefetch(p->data + ahead);
        int is_there = has_header(p->data, p->length, at);
        p->total_size[row] = is_there ? read_i4(p->data + at) : 0;
        p->sys_flag[row] = is_there ? read_i4(p->data + at + AT_SYS_FLAG) : 0;
        /* The sum may wrap: then no record says so. */
        int64_t own = (int64_t)((uint64_t)(p->bases ? p->bases[row] : p->base) + (uint64_t)at);
        Place place = {at, 0, at, 0, at, 0};
        p->ok[row] = is_there && place_record(p->data, p->length, at, own, p->total_size[row], p->sys_flag[row], &place);
        const int64_t found[] = {place.body,        place.body_bytes, place.topic,
                                 place.topic_bytes, place.properties, place.properties_bytes};
        for (int part = 0; part < 6; part++) p->parts[part * p->rows + row] = found[part];
    }
}

static PyObject *place_records(PyObject *module, PyObject *const *args, Py_ssize_t given)
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

static void fill_field(bytes data, int64_t length, const int64_t *position, int64_t rows, const Field *field, void *found)
{
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = position[row];
        int64_t value = has_header(data, length, at) ? read_field(data + at, data + length, field) : 0;
        if (field->width == 8) ((int64_t *)found)[row] = value;
        else ((int32_t *)found)[row] = (int32_t)value;
    }
}

static PyObject *header_field(PyObject *module, PyObject *const *args, Py_ssize_t given)
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
        } else if ((found = get(&buffers, args[3], (int64_t)buffers.views[1].len / 8 * fields[field].width, fields[field].width, PyBUF_WRITABLE))) {
            int64_t rows = buffers.views[1].len / 8;
            WITHOUT_GIL(rows, 0, fill_field(data, buffers.views[0].len, position, rows, fields + field, found));
            return nothing(&buffers, 1);
        }
    }
    return nothing(&buffers, 0);
}

/* Take data, position and parts, as all functions of whole records begin. */
static int get_records(Buffers *buffers, PyObject *const *args, Records *records)
{
    int64_t *parts;
    if (!(records->data = get(buffers, args[0], -1, 1, PyBUF_SIMPLE)) ||
        !(records->position = get(buffers, args[1], -1, 8, PyBUF_SIMPLE)) ||
        !(parts = get(buffers, args[2], 6 * buffers->views[1].len, 8, PyBUF_SIMPLE)))
        return 0;
    records->length = buffers->views[0].len;
    records->rows = buffers->views[1].len / 8;
    for (int part = 0; part < 6; part++) records->parts[part] = parts + part * records->rows;
    if (records->rows <= INT32_MAX && are_inside(records)) return 1;
    PyErr_SetString(PyExc_ValueError, "a record is not inside the data");
    return 0;
}

static int get_text(Buffers *buffers, PyObject *const *args, Text *text, int64_t rows)
{
    if (!(text->offsets = get(buffers, args[0], 4 * (rows + 1), 4, PyBUF_SIMPLE)) ||
        !(text->data = get(buffers, args[1], -1, 1, PyBUF_SIMPLE)))
        return 0;
    text->length = buffers->views[buffers->count - 1].len;
    return 1;
}

/* Take offsets, data, and which rows are valid; None thrice: all rows are null, the last: none is. */
static int get_nullable(Buffers *buffers, PyObject *const *args, Text *text, int64_t rows)
{
    if (Py_IsNone(args[0])) return 1;
    if (!get_text(buffers, args, text, rows)) return 0;
    return Py_IsNone(args[2]) || (text->valid = get(buffers, args[2], rows, 1, PyBUF_SIMPLE));
}

/* ---- number_topics(data, position, parts, code, first_row, table) ---- */

/* Take the three arrays of a numbering of the topics of some records. */
static int get_numbering(Buffers *buffers, PyObject *const *args, const Records *in, Numbering *n)
{
    if (!(n->code = get(buffers, args[0], 4 * in->rows, 4, PyBUF_WRITABLE)) ||
        !(n->first_row = get(buffers, args[1], 4 * in->rows, 4, PyBUF_WRITABLE)) ||
        !(n->table = get(buffers, args[2], -1, 4, PyBUF_WRITABLE)))
        return 0;
    n->data = in->data, n->rows = in->rows, n->start = in->parts[2], n->bytes_of = in->parts[3];
    n->table_rows = buffers->views[buffers->count - 1].len / 4;
    memset(n->table, 0xFF, (size_t)(4 * n->table_rows));
    if (n->table_rows > n->rows && !(n->table_rows & (n->table_rows - 1))) return 1;
    PyErr_SetString(PyExc_ValueError, "the table has a power of two rows, more than there are records");
    return 0;
}

static PyObject *number_topics(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Records in;
    Numbering topics = {0};
    PyObject *result = NULL;
    if (has_arguments(given, 6) && get_records(&buffers, args, &in) && get_numbering(&buffers, args + 3, &in, &topics)) {
        int64_t distinct;
        WITHOUT_GIL(in.rows, 0, distinct = number_names(&topics));
        result = PyLong_FromLongLong(distinct);
    }
    release(&buffers);
    return result;
}

/* ---- dispatch(data, position, parts, tags_code, kinds, entry_hash, entry_row, entry_is_tag, topic_code, first_row,
 * table, topic_hash): how many entries and topics; -1 topics: too many have one hash ---- */

static int get_dispatch(Buffers *buffers, PyObject *const *args, int64_t rows, Dispatch *d)
{
    if (!(d->tags_code = get(buffers, args[0], 4 * rows, 4, PyBUF_WRITABLE)) ||
        !(d->kinds = get(buffers, args[1], rows, 1, PyBUF_WRITABLE)) ||
        !(d->entry_hash = get(buffers, args[2], -1, 4, PyBUF_WRITABLE)))
        return 0;
    int64_t bytes_of_hashes = buffers->views[buffers->count - 1].len;
    d->most_entries = bytes_of_hashes / 4;
    return (d->entry_row = get(buffers, args[3], bytes_of_hashes, 4, PyBUF_WRITABLE)) &&
           (d->entry_is_tag = get(buffers, args[4], bytes_of_hashes / 4, 1, PyBUF_WRITABLE));
}

static PyObject *dispatch(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Records in;
    Numbering topics = {0};
    Dispatch work = {0};
    int64_t *topic_hash;
    PyObject *result = NULL;
    if (has_arguments(given, 12) && get_records(&buffers, args, &in) && get_dispatch(&buffers, args + 3, in.rows, &work) &&
        get_numbering(&buffers, args + 8, &in, &topics) &&
        (topic_hash = get(&buffers, args[11], 8 * in.rows, 8, PyBUF_WRITABLE))) {
        int is_done;
        WITHOUT_GIL(in.rows, sum(in.parts[5], in.rows), is_done = dispatch_records(&in, &topics, topic_hash, &work));
        if (!is_done) PyErr_SetString(PyExc_ValueError, "too little room for the entries");
        else result = Py_BuildValue("LL", (long long)work.entries, (long long)(is_done < 0 ? -1 : topics.distinct));
    }
    release(&buffers);
    return result;
}

/* ---- dispatch_properties(offsets, data, topic_hash, sys_flag, tags_code, …, entry_is_tag): how many entries ---- */

static PyObject *dispatch_encoded(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    PropertyRows in = {0};
    Dispatch work = {0};
    PyObject *result = NULL;
    if (has_arguments(given, 9) && (in.topic_hash = get(&buffers, args[2], -1, 4, PyBUF_SIMPLE)) &&
        (in.sys_flag = get(&buffers, args[3], buffers.views[0].len, 4, PyBUF_SIMPLE))) {
        in.rows = buffers.views[0].len / 4;
        if (in.rows > INT32_MAX) PyErr_SetString(PyExc_ValueError, "too many rows");
        else if ((in.offsets = get(&buffers, args[0], 4 * (in.rows + 1), 4, PyBUF_SIMPLE)) &&
                 (in.data = get(&buffers, args[1], -1, 1, PyBUF_SIMPLE)) && get_dispatch(&buffers, args + 4, in.rows, &work)) {
            int is_done;
            in.length = buffers.views[3].len;
            WITHOUT_GIL(in.rows, in.length, is_done = dispatch_properties(&in, &work));
            if (is_done) result = PyLong_FromLongLong(work.entries);
            else PyErr_SetString(PyExc_ValueError, "a row is not inside the data, or too little room for the entries");
        }
    }
    release(&buffers);
    return result;
}

/* ---- dispatch_values(topic_hash, sys_flag, offsets, data and valid of unique keys, keys, and tags, tags_code, …,
 * entry_is_tag): how many entries ---- */

static PyObject *dispatch_columns(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    ValueRows in = {0};
    Dispatch work = {0};
    int64_t done = -1;
    if (has_arguments(given, 16) && (in.topic_hash = get(&buffers, args[0], -1, 4, PyBUF_SIMPLE))) {
        in.rows = buffers.views[0].len / 4;
        if (in.rows > INT32_MAX) PyErr_SetString(PyExc_ValueError, "too many rows");
        else if ((in.sys_flag = get(&buffers, args[1], 4 * in.rows, 4, PyBUF_SIMPLE)) &&
                 get_nullable(&buffers, args + 2, &in.unique_key, in.rows) &&
                 get_nullable(&buffers, args + 5, &in.keys, in.rows) &&
                 get_nullable(&buffers, args + 8, &in.tags, in.rows) && get_dispatch(&buffers, args + 11, in.rows, &work))
            WITHOUT_GIL(in.rows, 0, done = dispatch_values(&in, &work));
    }
    if (done >= 0 && done < in.rows) PyErr_Format(PyExc_ValueError, "row %lld is wrong or does not fit", (long long)done);
    release(&buffers);
    return done < 0 || done < in.rows ? NULL : PyLong_FromLongLong(work.entries);
}

/* ---- columns(data, position, parts, wanted, names, allocate) ---- */

static int get_names(PyObject *names, Name *found, int *name_count)
{
    Py_ssize_t count = PyTuple_Check(names) ? PyTuple_Size(names) : -1;
    if (count < 0 || count > MOST_NAMES) {
        PyErr_Format(PyExc_ValueError, "expected a tuple of at most %d names", MOST_NAMES);
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        char *at;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(names, i), &at, &size) < 0) return 0;
        found[i] = (Name){(bytes)at, size};
    }
    *name_count = (int)count;
    return 1;
}

static int get_decoding(Buffers *buffers, PyObject *const *args, Decoding *decoding)
{
    int64_t wanted;
    if (!get_records(buffers, args, &decoding->in) || !get_int64(args[3], &wanted) ||
        !get_names(args[4], decoding->names, &decoding->name_count))
        return 0;
    decoding->wanted = (uint64_t)wanted;
    return 1;
}

static Py_ssize_t place_in(const void *at, const uint8_t *block) { return at ? (const uint8_t *)at - block : -1; }

/* Let Python's function `allocate` make a block of so many bytes, which is returned in `made` too. NULL:
 * an error; or, if `made` is None, the function makes none, or the columns exceed 2 GiB. */
static uint8_t *allocated(Buffers *buffers, PyObject *allocate, int64_t size, PyObject **made)
{
    *made = size < 0 ? Py_NewRef(Py_None) : PyObject_CallFunction(allocate, "L", (long long)size);
    if (!*made || Py_IsNone(*made)) return NULL;
    uint8_t *block = get(buffers, *made, size, 8, PyBUF_WRITABLE);
    if (!block) Py_CLEAR(*made);
    return block;
}

/* Return a tuple of the block, of (rows, nulls, valid, offsets, data, data bytes) of each column,
 * absent ones too, and of where the refused rows are and how many. */
static PyObject *describe(PyObject *made, const uint8_t *block, const Column *columns, int count,
                          const int32_t *refused_rows, int64_t refused_count)
{
    PyObject *result = PyTuple_New(count + 3);
    for (int i = 0; result && i < count; i++) {
        const Column *column = columns + i;
        PyObject *part = Py_BuildValue("LLnnnL", (long long)column->rows, (long long)column->nulls,
                                       place_in(column->valid, block), place_in(column->offsets, block),
                                       place_in(column->data, block), (long long)column->used);
        if (!part || PyTuple_SetItem(result, i + 1, part) < 0) Py_CLEAR(result);
    }
    if (!result) return NULL;
    PyObject *at = PyLong_FromSsize_t(place_in(refused_rows, block));
    PyObject *refused = PyLong_FromLongLong(refused_count);
    if (!at || !refused) {
        Py_XDECREF(at);
        Py_XDECREF(refused);
        Py_CLEAR(result);
        return NULL;
    }
    PyTuple_SetItem(result, 0, Py_NewRef(made));
    PyTuple_SetItem(result, count + 1, at);
    PyTuple_SetItem(result, count + 2, refused);
    return result;
}

static PyObject *columns(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Decoding d = {0};
    PyObject *result = NULL, *made = NULL;
    if (has_arguments(given, 6) && get_decoding(&buffers, args, &d)) {
        int64_t size = lay_out(&d, NULL);
        uint8_t *block = allocated(&buffers, args[5], size, &made);
        if (block) {
            lay_out(&d, block);
            WITHOUT_GIL(d.in.rows, size, fill_columns(&d));
            int count = of_first_value + d.name_count;
            result = describe(made, block, d.columns, count, d.refused, d.refused_count);
        } else if (made) {
            result = Py_NewRef(made);
        }
    }
    Py_XDECREF(made);
    release(&buffers);
    return result;
}

/* ---- encode(block, starts, store_timestamp_at, body_crc, offsets and data of topic, body,
 * properties, tail, born host, store host, then six columns of numbers or None) ---- */

/* Return a column of `rows` numbers, NULL for None; sets *is_good to 0 on an error. */
static const void *get_numbers(Buffers *buffers, PyObject *object, int64_t rows, int width, int *is_good)
{
    if (Py_IsNone(object)) return NULL;
    const void *column = get(buffers, object, width * rows, width, PyBUF_SIMPLE);
    if (!column) *is_good = 0;
    return column;
}

static int get_encoding(Buffers *buffers, PyObject *const *args, Encoding *e)
{
    if (!(e->block = get(buffers, args[0], -1, 1, PyBUF_WRITABLE)) || !(e->starts = get(buffers, args[1], -1, 8, PyBUF_WRITABLE)))
        return 0;
    e->block_bytes = buffers->views[0].len;
    int64_t rows = e->rows = buffers->views[1].len / 8;
    Text *texts[] = {&e->topic, &e->body, &e->properties, &e->tail, &e->born_host, &e->store_host};
    if (!(e->store_timestamp_at = get(buffers, args[2], 8 * rows, 8, PyBUF_WRITABLE)) ||
        !(e->body_crc = get(buffers, args[3], 4 * rows, 4, PyBUF_WRITABLE)))
        return 0;
    for (int i = 0; i < 6; i++)
        if (!get_text(buffers, args + 4 + 2 * i, texts[i], rows)) return 0;
    int is_good = 1;
    e->queue_id = get_numbers(buffers, args[16], rows, 4, &is_good);
    if (is_good) e->flag = get_numbers(buffers, args[17], rows, 4, &is_good);
    if (is_good) e->sys_flag = get_numbers(buffers, args[18], rows, 4, &is_good);
    if (is_good) e->born_timestamp = get_numbers(buffers, args[19], rows, 8, &is_good);
    if (is_good) e->reconsume_times = get_numbers(buffers, args[20], rows, 4, &is_good);
    if (is_good) e->prepared_transaction_offset = get_numbers(buffers, args[21], rows, 8, &is_good);
    return is_good;
}

static PyObject *encode(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Encoding encoding = {0};
    int64_t done = -1;
    if (!has_arguments(given, 22) || !get_encoding(&buffers, args, &encoding)) return nothing(&buffers, 0);
    WITHOUT_GIL(encoding.rows, encoding.block_bytes, done = encode_records(&encoding));
    if (done == encoding.rows) return nothing(&buffers, 1);
    if (done < 0) PyErr_SetString(PyExc_ValueError, "the records do not fill the block");
    else PyErr_Format(PyExc_ValueError, "row %lld is wrong or does not fit", (long long)done);
    return nothing(&buffers, 0);
}

/* ---- join_properties(names, offsets, data, then offsets, data and valid of the values of each name) ---- */

static int get_joining(Buffers *buffers, PyObject *const *args, Py_ssize_t given, Joining *j)
{
    Py_ssize_t count = given > 0 && PyTuple_Check(args[0]) ? PyTuple_Size(args[0]) : -1;
    if (count < 0 || count > MOST_NAMED || given != 3 + 3 * count) {
        PyErr_Format(PyExc_ValueError, "expected at most %d names, and three arguments for each", MOST_NAMED);
        return 0;
    }
    j->count = (int)count;
    if (!(j->offsets = get(buffers, args[1], -1, 4, PyBUF_WRITABLE)) || !(j->data = get(buffers, args[2], -1, 1, PyBUF_WRITABLE)))
        return 0;
    j->rows = buffers->views[0].len / 4 - 1;
    j->data_bytes = buffers->views[1].len;
    if (j->rows < 0 || j->data_bytes > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "no offsets, or more than 2 GiB");
        return 0;
    }
    for (int i = 0; i < j->count; i++) {
        char *at;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(args[0], i), &at, &size) < 0) return 0;
        j->names[i] = (Piece){(bytes)at, size};
        if (!get_nullable(buffers, args + 3 + 3 * i, &j->values[i], j->rows)) return 0;
    }
    return 1;
}

static PyObject *join(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Joining joining = {0};
    int64_t done = -1;
    if (!get_joining(&buffers, args, given, &joining)) return nothing(&buffers, 0);
    WITHOUT_GIL(joining.rows, joining.data_bytes, done = join_properties(&joining));
    if (done == joining.rows) return nothing(&buffers, 1);
    PyErr_Format(PyExc_ValueError, "row %lld is wrong or does not fit", (long long)done);
    return nothing(&buffers, 0);
}

/* ---- patch(block, starts, store_timestamp_at, queue offsets, commit log offsets, store times or the time of all) ---- */

static PyObject *patch(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Patching p = {0};
    int64_t done = -1;
    if (has_arguments(given, 6) && (p.block = get(&buffers, args[0], -1, 1, PyBUF_WRITABLE)) &&
        (p.starts = get(&buffers, args[1], -1, 8, PyBUF_SIMPLE)) &&
        (p.store_timestamp_at = get(&buffers, args[2], buffers.views[1].len, 8, PyBUF_SIMPLE)) &&
        (p.queue_offset = get(&buffers, args[3], buffers.views[1].len, 8, PyBUF_SIMPLE)) &&
        (p.commit_log_offset = get(&buffers, args[4], buffers.views[1].len, 8, PyBUF_SIMPLE)) &&
        (PyLong_Check(args[5]) ? get_int64(args[5], &p.store_timestamp)
                               : !!(p.store_timestamps = get(&buffers, args[5], buffers.views[1].len, 8, PyBUF_SIMPLE)))) {
        p.rows = buffers.views[1].len / 8;
        p.block_bytes = buffers.views[0].len;
        WITHOUT_GIL(p.rows, 0, done = patch_records(&p));
        if (done == p.rows) return nothing(&buffers, 1);
        PyErr_Format(PyExc_ValueError, "row %lld is not inside the block", (long long)done);
    }
    return nothing(&buffers, 0);
}

/* ---- link(slots, key_hash, commit_log_offset, time_diff, first_number, entries, slot, held) ---- */

static int are_positive(const int32_t *values, int64_t count)
{
    int32_t any = 0;
    for (int64_t i = 0; i < count; i++) any |= values[i];
    return any >= 0;
}

static PyObject *link_into_slots(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Linking l = {0};
    int64_t first = 0, used = -1;
    if (has_arguments(given, 8) && (l.slots = get(&buffers, args[0], -1, 4, PyBUF_WRITABLE)) &&
        (l.key_hash = get(&buffers, args[1], -1, 4, PyBUF_SIMPLE)) &&
        (l.commit_log_offset = get(&buffers, args[2], 2 * buffers.views[1].len, 8, PyBUF_SIMPLE)) &&
        (l.time_diff = get(&buffers, args[3], buffers.views[1].len, 4, PyBUF_SIMPLE)) && get_int64(args[4], &first) &&
        (l.entries = get(&buffers, args[5], buffers.views[1].len / 4 * INDEX_ENTRY_BYTES, 1, PyBUF_WRITABLE)) &&
        (l.slot = get(&buffers, args[6], 2 * buffers.views[1].len, 8, PyBUF_WRITABLE)) &&
        (l.held = get(&buffers, args[7], buffers.views[1].len, 4, PyBUF_WRITABLE))) {
        l.slot_count = buffers.views[0].len / 4;
        l.rows = buffers.views[1].len / 4;
        l.first_number = (int32_t)first;
        int is_good = l.slot_count > 0 && first > 0 && l.rows <= INT32_MAX - first && are_positive(l.key_hash, l.rows);
        if (is_good) WITHOUT_GIL(l.rows, 0, used = link_entries(&l));
        else PyErr_SetString(PyExc_ValueError, "no slots, a negative hash, or numbers beyond 31 bits");
    }
    release(&buffers);
    return used < 0 ? NULL : PyLong_FromLongLong(used);
}

/* ---- values(data, start, count, names, allocate) ---- */

static int are_pieces(const Naming *n)
{
    for (int64_t row = 0; row < n->rows; row++) {
        int64_t start = n->start[row], count = n->count[row];
        if (start < 0 || start > n->length || count < 0 || count > n->length - start || count > INT32_MAX) return 0;
    }
    return 1;
}

static int get_naming(Buffers *buffers, PyObject *const *args, Naming *n)
{
    if (!(n->data = get(buffers, args[0], -1, 1, PyBUF_SIMPLE)) || !(n->start = get(buffers, args[1], -1, 8, PyBUF_SIMPLE)) ||
        !(n->count = get(buffers, args[2], buffers->views[1].len, 8, PyBUF_SIMPLE)) ||
        !get_names(args[3], n->names, &n->name_count))
        return 0;
    n->length = buffers->views[0].len;
    n->rows = buffers->views[1].len / 8;
    if (n->rows <= INT32_MAX && are_pieces(n)) return 1;
    PyErr_SetString(PyExc_ValueError, "a property string is not inside the data");
    return 0;
}

static PyObject *values(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Naming n = {0};
    PyObject *result = NULL, *made = NULL;
    if (has_arguments(given, 5) && get_naming(&buffers, args, &n)) {
        int64_t size = lay_out_values(&n, NULL);
        uint8_t *block = allocated(&buffers, args[4], size, &made);
        if (block) {
            lay_out_values(&n, block);
            WITHOUT_GIL(n.rows, size, fill_values(&n));
            result = describe(made, block, n.columns, n.name_count, n.refused, n.refused_count);
        } else if (made) {
            result = Py_NewRef(made);
        }
    }
    Py_XDECREF(made);
    release(&buffers);
    return result;
}

/* ---- encode_put(topic, magic_code, body, most_body, properties, marks, queue_id, flag, sys_flag, born_timestamp,
 * born_host, store_host, reconsume_times, prepared_transaction_offset): None if anything is unusual ---- */

static int get_piece(PyObject *object, Piece *piece)
{
    char *at;
    Py_ssize_t count;
    if (!PyBytes_CheckExact(object) || PyBytes_AsStringAndSize(object, &at, &count) < 0) return 0;
    *piece = (Piece){(bytes)at, count};
    return 1;
}

/* Take a number between the limits of its field; no error is set. */
static int get_number(PyObject *object, int64_t least, int64_t most, int64_t *value)
{
    int overflow = 0;
    if (!PyLong_CheckExact(object)) return 0;
    *value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow && *value >= least && *value <= most;
}

static int get_int32(PyObject *object, int32_t *value)
{
    int64_t wide;
    if (!get_number(object, INT32_MIN, INT32_MAX, &wide)) return 0;
    *value = (int32_t)wide;
    return 1;
}

static int get_utf8(PyObject *object, Piece *piece)
{
    Py_ssize_t count;
    const char *at = PyUnicode_CheckExact(object) ? PyUnicode_AsUTF8AndSize(object, &count) : NULL;
    if (at) *piece = (Piece){(bytes)at, count};
    else PyErr_Clear(); /* a lone surrogate */
    return !!at;
}

static int get_properties(PyObject *object, Put *put)
{
    if (get_piece(object, &put->raw)) return 1;
    PyObject *name, *value;
    Py_ssize_t at = 0;
    if (!PyDict_CheckExact(object) || PyDict_Size(object) > MOST_PIECES / 2) return 0;
    while (PyDict_Next(object, &at, &name, &value)) {
        if (!get_utf8(name, put->pieces + put->piece_count) || !get_utf8(value, put->pieces + put->piece_count + 1))
            return 0;
        put->piece_count += 2;
    }
    return 1;
}

static int get_put(PyObject *const *args, Put *put)
{
    int64_t most_body;
    return get_piece(args[0], &put->topic) && get_int32(args[1], &put->magic_code) && get_piece(args[2], &put->body) &&
           get_number(args[3], 0, INT64_MAX, &most_body) && put->body.count <= most_body && get_int32(args[6], &put->queue_id) && get_int32(args[7], &put->flag) &&
           get_int32(args[8], &put->sys_flag) && !(put->sys_flag & INNER_BATCH_FLAG) &&
           get_number(args[9], INT64_MIN, INT64_MAX, &put->born_timestamp) && get_piece(args[10], &put->born_host) &&
           get_piece(args[11], &put->store_host) && get_int32(args[12], &put->reconsume_times) &&
           get_number(args[13], INT64_MIN, INT64_MAX, &put->prepared_transaction_offset);
}

/* Return whether any of a tuple of marks, or something that is not bytes, is among the properties. */
static int holds_any(PyObject *marks, bytes at, int64_t count)
{
    Py_ssize_t most = PyTuple_CheckExact(marks) ? PyTuple_Size(marks) : 0;
    int found = !PyTuple_CheckExact(marks);
    for (Py_ssize_t i = 0; !found && i < most; i++) {
        Piece mark;
        found = !get_piece(PyTuple_GetItem(marks, i), &mark) || holds(at, count, mark);
    }
    return found;
}

static PyObject *encode_put(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Put put;
    put.piece_count = 0;
    put.raw = (Piece){(bytes)nowhere, 0};
    if (!has_arguments(given, 14)) return NULL;
    if (!get_put(args, &put)) Py_RETURN_NONE;
    WITHOUT_GIL(1, put.body.count, put.body_crc = (int32_t)stored_crc32(put.body.at, put.body.count));
    /* From here on with the GIL: other threads may change the properties. */
    int64_t size = get_properties(args[4], &put) ? put_bytes(&put) : -1;
    if (size < 0) Py_RETURN_NONE;
    PyObject *record = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!record) return NULL;
    uint8_t *begin = (uint8_t *)PyByteArray_AsString(record), *properties = write_put(&put, begin);
    if (!holds_any(args[5], properties, begin + size - properties)) return record;
    Py_DECREF(record);
    Py_RETURN_NONE;
}

/* ---- patch_put(record, queue_offset, commit_log_offset, store_timestamp): whether it is done ---- */

static PyObject *patch_one(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    int64_t numbers[3];
    if (!has_arguments(given, 4)) return NULL;
    int is_good = PyByteArray_CheckExact(args[0]);
    for (int i = 0; is_good && i < 3; i++) is_good = get_number(args[1 + i], INT64_MIN, INT64_MAX, numbers + i);
    if (is_good)
        is_good = patch_put((uint8_t *)PyByteArray_AsString(args[0]), PyByteArray_Size(args[0]), numbers[0], numbers[1],
                            numbers[2]);
    return PyBool_FromLong(is_good);
}

/* ---- select(data, position, parts, without_flags, ranges, topics, keep) ---- */

static int are_fields(const int64_t *ranges, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (ranges[3 * i] < 0 || ranges[3 * i] >= FIELD_COUNT) return 0;
    return 1;
}

static PyObject *select_rows(PyObject *module, PyObject *const *args, Py_ssize_t given)
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

/* ---- have_value(data, start, count, names, texts, found): of one name ---- */

static PyObject *have_value(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Naming naming = {0};
    Name texts[MOST_NAMES];
    int text_count;
    uint8_t *found;
    if (has_arguments(given, 6) && get_naming(&buffers, args, &naming) && get_names(args[4], texts, &text_count) &&
        (found = get(&buffers, args[5], naming.rows, 1, PyBUF_WRITABLE))) {
        if (naming.name_count != 1) {
            PyErr_SetString(PyExc_ValueError, "expected one name");
        } else {
            WITHOUT_GIL(naming.rows, sum(naming.count, naming.rows), select_by_value(&naming, texts, text_count, found));
            return nothing(&buffers, 1);
        }
    }
    return nothing(&buffers, 0);
}

/* ---- the module ---- */

static PyMethodDef methods[] = {
    {"crc32_ranges", (PyCFunction)(void (*)(void))crc32_ranges, METH_FASTCALL, NULL},
    {"walk_records", (PyCFunction)(void (*)(void))walk, METH_FASTCALL, NULL},
    {"place_records", (PyCFunction)(void (*)(void))place_records, METH_FASTCALL, NULL},
    {"header_field", (PyCFunction)(void (*)(void))header_field, METH_FASTCALL, NULL},
    {"dispatch", (PyCFunction)(void (*)(void))dispatch, METH_FASTCALL, NULL},
    {"dispatch_values", (PyCFunction)(void (*)(void))dispatch_columns, METH_FASTCALL, NULL},
    {"dispatch_properties", (PyCFunction)(void (*)(void))dispatch_encoded, METH_FASTCALL, NULL},
    {"number_topics", (PyCFunction)(void (*)(void))number_topics, METH_FASTCALL, NULL},
    {"encode", (PyCFunction)(void (*)(void))encode, METH_FASTCALL, NULL},
    {"join_properties", (PyCFunction)(void (*)(void))join, METH_FASTCALL, NULL},
    {"patch", (PyCFunction)(void (*)(void))patch, METH_FASTCALL, NULL},
    {"link", (PyCFunction)(void (*)(void))link_into_slots, METH_FASTCALL, NULL},
    {"encode_put", (PyCFunction)(void (*)(void))encode_put, METH_FASTCALL, NULL},
    {"patch_put", (PyCFunction)(void (*)(void))patch_one, METH_FASTCALL, NULL},
    {"columns", (PyCFunction)(void (*)(void))columns, METH_FASTCALL, NULL},
    {"json_frame", (PyCFunction)(void (*)(void))json_frame, METH_FASTCALL, NULL},
    {"json_header", (PyCFunction)(void (*)(void))json_header, METH_FASTCALL, NULL},
    {"select", (PyCFunction)(void (*)(void))select_rows, METH_FASTCALL, NULL},
    {"have_value", (PyCFunction)(void (*)(void))have_value, METH_FASTCALL, NULL},
    {"values", (PyCFunction)(void (*)(void))values, METH_FASTCALL, NULL},
    {"plain_records", (PyCFunction)(void (*)(void))plain_records, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static const char *const column_names[] = {
#define NUMBER(name, width) #name,
#define TEXT(name) #name,
    NUMBER_COLUMNS(NUMBER) TEXT_COLUMNS(TEXT) "properties", "names", "values", "keys", "words",
#undef NUMBER
#undef TEXT
};

_Static_assert(sizeof(column_names) / sizeof(*column_names) == of_first_value, "a name for each column");

static PyObject *texts(const char *const *values, int count)
{
    PyObject *result = PyTuple_New(count);
    for (int i = 0; result && i < count; i++) {
        PyObject *text = PyUnicode_FromString(values[i]);
        if (!text || PyTuple_SetItem(result, i, text) < 0) Py_CLEAR(result);
    }
    return result;
}

static int add_constants(PyObject *module)
{
    const char *field_names[sizeof(fields) / sizeof(*fields)];
    for (int64_t i = 0; i < FIELD_COUNT; i++) field_names[i] = fields[i].name;
    PyObject *columns_tuple = texts(column_names, of_first_value);
    PyObject *fields_tuple = texts(field_names, (int)FIELD_COUNT);
    int failed = PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0 ||
                 PyModule_AddIntConstant(module, "MOST_NAMED", MOST_NAMED) < 0 ||
                 PyModule_AddIntConstant(module, "MOST_NAMES", MOST_NAMES) < 0 || !columns_tuple || !fields_tuple ||
                 PyModule_AddObjectRef(module, "COLUMNS", columns_tuple) < 0 ||
                 PyModule_AddObjectRef(module, "HEADER_FIELDS", fields_tuple) < 0;
    Py_XDECREF(columns_tuple);
    Py_XDECREF(fields_tuple);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)add_constants}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernel", "The native kernel; see store_core/native/__init__.py.", 0, methods, slots,
    NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void)
{
    crc32_init();
    columns_init();
    return PyModuleDef_Init(&definition);
}
