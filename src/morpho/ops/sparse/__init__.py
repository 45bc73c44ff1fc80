"""Operations on compressed sparse rows: a pattern (`indptr`, `indices`) and the numbers at its places."""
