"""Matrix products on a grid: exact on the arithmetic units, bfloat16 and float16 on tensor cores."""
