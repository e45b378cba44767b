"""Raw data sources and the canonical data sets made from them."""
