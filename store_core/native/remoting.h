/* SPDX-License-Identifier: Apache-2.0 */
/* Python's side of remoting frames and received records, for module.c. */
#ifndef ROCKETMQ_STORE_REMOTING_H
#define ROCKETMQ_STORE_REMOTING_H

PyObject *json_frame(PyObject *module, PyObject *const *args, Py_ssize_t given);
PyObject *json_header(PyObject *module, PyObject *const *args, Py_ssize_t given);
PyObject *plain_records(PyObject *module, PyObject *const *args, Py_ssize_t given);

#endif
