"""`morpho bench cluster`: several processes of one program, on this machine."""
