"""One module per stage of the workflow, between science and files.

Each has `make(parameters, folder, job)`: it hands the job to the science as its `Run` and writes the payload into
`folder`.
"""
