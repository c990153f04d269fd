/* SPDX-License-Identifier: Apache-2.0 */
/* Python's side of records that are put: batches, then one. */
#include "arguments.h"
#include "encode.h"
#include "put.h"
#include "module.h"

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
    if (!(e->block = get(buffers, args[0], -1, 1, PyBUF_WRITABLE)) ||
        !(e->starts = get(buffers, args[1], -1, 8, PyBUF_WRITABLE)))
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

PyObject *py_encode(PyObject *module, PyObject *const *args, Py_ssize_t given)
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
    if (!(j->offsets = get(buffers, args[1], -1, 4, PyBUF_WRITABLE)) ||
        !(j->data = get(buffers, args[2], -1, 1, PyBUF_WRITABLE)))
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

PyObject *py_join_properties(PyObject *module, PyObject *const *args, Py_ssize_t given)
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

/* ---- patch(block, starts, store_timestamp_at, queue offsets, commit log offsets, store times or the time of all)
 * ---- */

PyObject *py_patch(PyObject *module, PyObject *const *args, Py_ssize_t given)
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
        (PyLong_Check(args[5])
             ? get_int64(args[5], &p.store_timestamp)
             : !!(p.store_timestamps = get(&buffers, args[5], buffers.views[1].len, 8, PyBUF_SIMPLE)))) {
        p.rows = buffers.views[1].len / 8;
        p.block_bytes = buffers.views[0].len;
        WITHOUT_GIL(p.rows, 0, done = patch_records(&p));
        if (done == p.rows) return nothing(&buffers, 1);
        PyErr_Format(PyExc_ValueError, "row %lld is not inside the block", (long long)done);
    }
    return nothing(&buffers, 0);
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
           get_number(args[3], 0, INT64_MAX, &most_body) && put->body.count <= most_body &&
           get_int32(args[6], &put->queue_id) && get_int32(args[7], &put->flag) && get_int32(args[8], &put->sys_flag) &&
           !(put->sys_flag & INNER_BATCH_FLAG) && get_number(args[9], INT64_MIN, INT64_MAX, &put->born_timestamp) &&
           get_piece(args[10], &put->born_host) && get_piece(args[11], &put->store_host) &&
           get_int32(args[12], &put->reconsume_times) &&
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

PyObject *py_encode_put(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Put put;
    put.piece_count = 0;
    put.raw = (Piece){(bytes) "", 0};
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

PyObject *py_patch_put(PyObject *module, PyObject *const *args, Py_ssize_t given)
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
