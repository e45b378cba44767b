"""One thread for each library that tests compute with: test processes share the cores among themselves.

It stands here because libraries read it when they are loaded, and this module is loaded before them.
"""

import os

os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
