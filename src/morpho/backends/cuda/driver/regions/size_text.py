# ruff: noqa: E501 (lines of LLVM's language)
"""Whether sizes are those of a region, whose words are `dynamic_call.RegionWord`: compute all its values, look at the
guards, and put the values where launches read them."""

from __future__ import annotations

SIZE_TEXT = """
define i64 @fit_region(ptr %r, ptr %sizes) {
entry:
  %symbols = load i64, ptr %r
  %rp1 = getelementptr i64, ptr %r, i64 1
  %values = load ptr, ptr %rp1
  %rp2 = getelementptr i64, ptr %r, i64 2
  %rows = load i64, ptr %rp2
  %rp3 = getelementptr i64, ptr %r, i64 3
  %table = load ptr, ptr %rp3
  %rp4 = getelementptr i64, ptr %r, i64 4
  %guards = load i64, ptr %rp4
  %rp5 = getelementptr i64, ptr %r, i64 5
  %guarded = load ptr, ptr %rp5
  %rp6 = getelementptr i64, ptr %r, i64 6
  %patches = load i64, ptr %rp6
  %rp7 = getelementptr i64, ptr %r, i64 7
  %patched = load ptr, ptr %rp7
  br label %symbol
symbol:
  %s = phi i64 [ 0, %entry ], [ %s1, %take ]
  %known = icmp eq i64 %s, %symbols
  br i1 %known, label %row, label %take
take:
  %from = getelementptr i64, ptr %sizes, i64 %s
  %size = load i64, ptr %from
  %to = getelementptr i64, ptr %values, i64 %s
  store i64 %size, ptr %to
  %s1 = add i64 %s, 1
  br label %symbol
row:
  %i = phi i64 [ 0, %symbol ], [ %i1, %computed ]
  %last = icmp eq i64 %i, %rows
  br i1 %last, label %guard, label %compute
compute:
  %i4 = mul i64 %i, 4
  %e = getelementptr i64, ptr %table, i64 %i4
  %operation = load i64, ptr %e
  %e1 = getelementptr i64, ptr %e, i64 1
  %left = load i64, ptr %e1
  %e2 = getelementptr i64, ptr %e, i64 2
  %right = load i64, ptr %e2
  %e3 = getelementptr i64, ptr %e, i64 3
  %result = load i64, ptr %e3
  %pa = getelementptr i64, ptr %values, i64 %left
  %a = load i64, ptr %pa
  %pb = getelementptr i64, ptr %values, i64 %right
  %b = load i64, ptr %pb
  %zero = icmp eq i64 %b, 0
  %d = select i1 %zero, i64 1, i64 %b
  switch i64 %operation, label %adds [ i64 1, label %subtracts i64 2, label %multiplies i64 3, label %divides i64 4, label %remains i64 5, label %less i64 6, label %atmost i64 7, label %equal ]
adds:
  %v0 = add i64 %a, %b
  br label %computed
subtracts:
  %v1 = sub i64 %a, %b
  br label %computed
multiplies:
  %v2 = mul i64 %a, %b
  br label %computed
divides:
  %q = sdiv i64 %a, %d
  %qd = mul i64 %q, %d
  %uneven = icmp ne i64 %qd, %a
  %signs = xor i64 %a, %d
  %differ = icmp slt i64 %signs, 0
  %down = and i1 %uneven, %differ
  %less1 = sext i1 %down to i64
  %v3 = add i64 %q, %less1
  br label %computed
remains:
  %m = srem i64 %a, %d
  %some = icmp ne i64 %m, 0
  %msigns = xor i64 %m, %d
  %mdiffer = icmp slt i64 %msigns, 0
  %other = and i1 %some, %mdiffer
  %more = select i1 %other, i64 %d, i64 0
  %v4 = add i64 %m, %more
  br label %computed
less:
  %c5 = icmp slt i64 %a, %b
  %v5 = zext i1 %c5 to i64
  br label %computed
atmost:
  %c6 = icmp sle i64 %a, %b
  %v6 = zext i1 %c6 to i64
  br label %computed
equal:
  %c7 = icmp eq i64 %a, %b
  %v7 = zext i1 %c7 to i64
  br label %computed
computed:
  %v = phi i64 [ %v0, %adds ], [ %v1, %subtracts ], [ %v2, %multiplies ], [ %v3, %divides ], [ %v4, %remains ], [ %v5, %less ], [ %v6, %atmost ], [ %v7, %equal ]
  %pv = getelementptr i64, ptr %values, i64 %result
  store i64 %v, ptr %pv
  %i1 = add i64 %i, 1
  br label %row
guard:
  %g = phi i64 [ 0, %row ], [ %g1, %holds ]
  %kept = icmp eq i64 %g, %guards
  br i1 %kept, label %patch, label %check
check:
  %g2 = mul i64 %g, 2
  %gp = getelementptr i64, ptr %guarded, i64 %g2
  %gi = load i64, ptr %gp
  %gq = getelementptr i64, ptr %gp, i64 1
  %wanted = load i64, ptr %gq
  %pg = getelementptr i64, ptr %values, i64 %gi
  %is = load i64, ptr %pg
  %same = icmp eq i64 %is, %wanted
  br i1 %same, label %holds, label %elsewhere
holds:
  %g1 = add i64 %g, 1
  br label %guard
elsewhere:
  ret i64 0
patch:
  %p = phi i64 [ 0, %guard ], [ %p1, %write ]
  %over = icmp eq i64 %p, %patches
  br i1 %over, label %done, label %write
write:
  %p2 = mul i64 %p, 2
  %pp = getelementptr i64, ptr %patched, i64 %p2
  %where = load ptr, ptr %pp
  %pq = getelementptr i64, ptr %pp, i64 1
  %which = load i64, ptr %pq
  %pw = getelementptr i64, ptr %values, i64 %which
  %word = load i64, ptr %pw
  store i64 %word, ptr %where
  %p1 = add i64 %p, 1
  br label %patch
done:
  ret i64 1
}
"""
