"""One model on many ranks: replicas with averaged gradients, sharded state, layers in parts."""
