"""How the same numbers come faster: frozen networks for attacks, batches on their device, sizes that fit caches."""
