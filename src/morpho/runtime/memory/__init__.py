"""The one allocator, and the memory of tensors."""
