"""Why something holds: proofs, and the smallest sets of facts that are enough."""
