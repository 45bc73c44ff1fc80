"""Dense relations: tensors over domains, rules as contractions, fixpoints as native loops, gradients through them."""
