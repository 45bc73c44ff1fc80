"""Other libraries' arrays and dispatchers: columns in Arrow's memory, backends that einops and opt_einsum look for."""
