"""Plugins while they serve: observers, what calls cost, and the ledger of faults."""
