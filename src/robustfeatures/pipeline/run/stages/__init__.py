"""One module per stage of the workflow: parameters and input payloads in, one payload out.

Each has `make(parameters, inputs, folder, job)`, which writes the payload's files into `folder`.
"""
