/* SPDX-License-Identifier: Apache-2.0 */
/* Python's side of what queues and index need. */
#include "arguments.h"
#include "dispatch.h"
#include "index.h"
#include "module.h"

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

PyObject *py_number_topics(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Records in;
    Numbering topics = {0};
    PyObject *result = NULL;
    if (has_arguments(given, 6) && get_records(&buffers, args, &in) &&
        get_numbering(&buffers, args + 3, &in, &topics)) {
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

PyObject *py_dispatch(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Buffers buffers = {.count = 0};
    Records in;
    Numbering topics = {0};
    Dispatch work = {0};
    int64_t *topic_hash;
    PyObject *result = NULL;
    if (has_arguments(given, 12) && get_records(&buffers, args, &in) &&
        get_dispatch(&buffers, args + 3, in.rows, &work) && get_numbering(&buffers, args + 8, &in, &topics) &&
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

PyObject *py_dispatch_properties(PyObject *module, PyObject *const *args, Py_ssize_t given)
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
                 (in.data = get(&buffers, args[1], -1, 1, PyBUF_SIMPLE)) &&
                 get_dispatch(&buffers, args + 4, in.rows, &work)) {
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

PyObject *py_dispatch_values(PyObject *module, PyObject *const *args, Py_ssize_t given)
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
                 get_nullable(&buffers, args + 8, &in.tags, in.rows) &&
                 get_dispatch(&buffers, args + 11, in.rows, &work))
            WITHOUT_GIL(in.rows, 0, done = dispatch_values(&in, &work));
    }
    if (done >= 0 && done < in.rows)
        PyErr_Format(PyExc_ValueError, "row %lld is wrong or does not fit", (long long)done);
    release(&buffers);
    return done < 0 || done < in.rows ? NULL : PyLong_FromLongLong(work.entries);
}

/* ---- link(slots, key_hash, commit_log_offset, time_diff, first_number, entries, slot, held) ---- */

static int are_positive(const int32_t *values, int64_t count)
{
    int32_t any = 0;
    for (int64_t i = 0; i < count; i++) any |= values[i];
    return any >= 0;
}

PyObject *py_link(PyObject *module, PyObject *const *args, Py_ssize_t given)
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
