/* SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"
#include "columns.h"

static const int64_t nowhere[1]; /* stands for the buffer of an empty array */

void release(Buffers *buffers)
{
    while (buffers->count) PyBuffer_Release(&buffers->views[--buffers->count]);
}

void *get(Buffers *buffers, PyObject *object, int64_t expected, int width, int flags)
{
    Py_buffer *view = &buffers->views[buffers->count];
    if (PyObject_GetBuffer(object, view, flags) < 0) return NULL;
    buffers->count++;
    void *at = view->len ? view->buf : (void *)nowhere;
    if (expected >= 0 && view->len != expected)
        PyErr_Format(PyExc_ValueError, "expected an array of %lld bytes, not %zd", (long long)expected, view->len);
    else if ((uintptr_t)at % (size_t)width || view->len % width)
        PyErr_Format(PyExc_ValueError, "expected an aligned array of numbers of %d bytes", width);
    else return at;
    return NULL;
}

int has_arguments(Py_ssize_t given, Py_ssize_t expected)
{
    if (given == expected) return 1;
    PyErr_Format(PyExc_TypeError, "expected %zd arguments, not %zd", expected, given);
    return 0;
}

int get_int64(PyObject *object, int64_t *value)
{
    *value = PyLong_AsLongLong(object);
    return *value != -1 || !PyErr_Occurred();
}

int get_names(PyObject *names, Name *found, int *name_count)
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

int get_records(Buffers *buffers, PyObject *const *args, Records *records)
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

int get_text(Buffers *buffers, PyObject *const *args, Text *text, int64_t rows)
{
    if (!(text->offsets = get(buffers, args[0], 4 * (rows + 1), 4, PyBUF_SIMPLE)) ||
        !(text->data = get(buffers, args[1], -1, 1, PyBUF_SIMPLE)))
        return 0;
    text->length = buffers->views[buffers->count - 1].len;
    return 1;
}

int get_nullable(Buffers *buffers, PyObject *const *args, Text *text, int64_t rows)
{
    if (Py_IsNone(args[0])) return 1;
    if (!get_text(buffers, args, text, rows)) return 0;
    return Py_IsNone(args[2]) || (text->valid = get(buffers, args[2], rows, 1, PyBUF_SIMPLE));
}

PyObject *nothing(Buffers *buffers, int is_done)
{
    release(buffers);
    if (!is_done) return NULL;
    Py_RETURN_NONE;
}
