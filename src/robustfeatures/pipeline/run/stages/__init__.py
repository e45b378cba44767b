"""One module per stage of the workflow, between science and files.

Each has a function `make(parameters, folder, job)`, which passes the job to the science as its `Run` and writes the
payload into `folder`.
"""
