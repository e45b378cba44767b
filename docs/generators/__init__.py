"""Makes the pages and schemas that are generated from the code: `python -m docs.generators` writes them."""
