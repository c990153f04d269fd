/* SPDX-License-Identifier: Apache-2.0 */
/* Python's side of columns of records and of property strings. */
#include "arguments.h"
#include "columns.h"
#include "select.h"

/* ---- columns(data, position, parts, wanted, names, allocate) ---- */

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

/* Release everything; return the result, or None if `allocate` made no block. */
static PyObject *result_of(Buffers *buffers, PyObject *made, PyObject *result)
{
    if (!result && made && Py_IsNone(made)) result = Py_NewRef(made);
    Py_XDECREF(made);
    release(buffers);
    return result;
}

/* Return a tuple of the block, of (rows, nulls, valid, offsets, data, data bytes) of each column,
 * absent ones too, and of where the refused rows are and how many. */
static PyObject *describe(PyObject *made, const uint8_t *block, const Column *columns, int count,
                          const int32_t *refused_rows, int64_t refused_count)
{
    PyObject *result = PyTuple_New(count + 3);
    for (int i = 0; result && i < count; i++) {
        const Column *column = columns + i;
        PyObject *part =
            Py_BuildValue("LLnnnL", (long long)column->rows, (long long)column->nulls, place_in(column->valid, block),
                          place_in(column->offsets, block), place_in(column->data, block), (long long)column->used);
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

PyObject *py_columns(PyObject *module, PyObject *const *args, Py_ssize_t given)
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
        }
    }
    return result_of(&buffers, made, result);
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
    if (!(n->data = get(buffers, args[0], -1, 1, PyBUF_SIMPLE)) ||
        !(n->start = get(buffers, args[1], -1, 8, PyBUF_SIMPLE)) ||
        !(n->count = get(buffers, args[2], buffers->views[1].len, 8, PyBUF_SIMPLE)) ||
        !get_names(args[3], n->names, &n->name_count))
        return 0;
    n->length = buffers->views[0].len;
    n->rows = buffers->views[1].len / 8;
    if (n->rows <= INT32_MAX && are_pieces(n)) return 1;
    PyErr_SetString(PyExc_ValueError, "a property string is not inside the data");
    return 0;
}

PyObject *py_values(PyObject *module, PyObject *const *args, Py_ssize_t given)
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
        }
    }
    return result_of(&buffers, made, result);
}

/* ---- have_value(data, start, count, names, texts, found): of one name ---- */

PyObject *py_have_value(PyObject *module, PyObject *const *args, Py_ssize_t given)
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
            WITHOUT_GIL(naming.rows, sum(naming.count, naming.rows),
                        select_by_value(&naming, texts, text_count, found));
            return nothing(&buffers, 1);
        }
    }
    return nothing(&buffers, 0);
}
