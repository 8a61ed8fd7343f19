#include <Python.h>
static struct PyModuleDef m={PyModuleDef_HEAD_INIT,"_kernels",0,-1,0};PyMODINIT_FUNC PyInit__kernels(void){return PyModule_Create(&m);}
