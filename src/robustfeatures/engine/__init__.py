"""How the same numbers come faster: networks made ready for attacks, batches on their device, sizes that fit caches."""
