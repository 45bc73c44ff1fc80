# ruff: noqa: E501 (lines of LLVM's language)
"""The function that a native entry calls like a kernel: addresses into slots, then a graph that is known, or launches.

Its words are `native_call.Field`. A program is captured at its first calls, and later as long as graphs are replayed more
often than they are made; the oldest one makes room.
"""

from __future__ import annotations

ENTRY_TEXT = """
define i32 @launch_entry(ptr %places, ptr %values, i64 %r0, i64 %r1, i64 %c0, i64 %c1, ptr %none) {
entry:
  %c = load ptr, ptr %values
  %setp = load ptr, ptr %c
  %o1 = getelementptr i64, ptr %c, i64 1
  %context = load ptr, ptr %o1
  %current = call i32 %setp(ptr %context)
  %o2 = getelementptr i64, ptr %c, i64 2
  %n = load i64, ptr %o2
  %o3 = getelementptr i64, ptr %c, i64 3
  %which = load ptr, ptr %o3
  %o4 = getelementptr i64, ptr %c, i64 4
  %slots = load ptr, ptr %o4
  %empty = icmp eq i64 %n, 0
  br i1 %empty, label %placed, label %place
place:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %w = getelementptr i64, ptr %which, i64 %i
  %slot = load i64, ptr %w
  %read = icmp sge i64 %slot, 0
  br i1 %read, label %put, label %next
put:
  %p = getelementptr i64, ptr %places, i64 %i
  %address = load i64, ptr %p
  %s = getelementptr i64, ptr %slots, i64 %slot
  store i64 %address, ptr %s
  br label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %place, label %placed
placed:
  %o5 = getelementptr i64, ptr %c, i64 5
  %table = load ptr, ptr %o5
  %o6 = getelementptr i64, ptr %c, i64 6
  %count = load i64, ptr %o6
  %o7 = getelementptr i64, ptr %c, i64 7
  %scratch = load i64, ptr %o7
  %o8 = getelementptr i64, ptr %c, i64 8
  %faults = load i64, ptr %o8
  %o9 = getelementptr i64, ptr %c, i64 9
  %stream = load ptr, ptr %o9
  %o10 = getelementptr i64, ptr %c, i64 10
  %launch = load ptr, ptr %o10
  %o11 = getelementptr i64, ptr %c, i64 11
  %maps = load ptr, ptr %o11
  %o12 = getelementptr i64, ptr %c, i64 12
  %mapped = load i64, ptr %o12
  %o13 = getelementptr i64, ptr %c, i64 13
  %encode = load ptr, ptr %o13
  %o14 = getelementptr i64, ptr %c, i64 14
  %counter = load ptr, ptr %o14
  %before = load i64, ptr %counter
  %after = add i64 %before, %count
  store i64 %after, ptr %counter
  %o15 = getelementptr i64, ptr %c, i64 15
  %graphs = load i64, ptr %o15
  %o16 = getelementptr i64, ptr %c, i64 16
  %kept = load ptr, ptr %o16
  %graphed = icmp ne i64 %graphs, 0
  br i1 %graphed, label %look, label %plain
look:
  %g = phi i64 [ 0, %placed ], [ %g1, %other ]
  %rows = add i64 %n, 1
  %at = mul i64 %g, %rows
  %row = getelementptr i64, ptr %kept, i64 %at
  %graph = load ptr, ptr %row
  %there = icmp ne ptr %graph, null
  br i1 %there, label %compare, label %other
compare:
  %j = phi i64 [ 0, %look ], [ %j1, %same ]
  %done = icmp eq i64 %j, %n
  br i1 %done, label %replay, label %one
one:
  %ja = add i64 %j, 1
  %k = getelementptr i64, ptr %row, i64 %ja
  %known = load i64, ptr %k
  %pj = getelementptr i64, ptr %places, i64 %j
  %now = load i64, ptr %pj
  %equal = icmp eq i64 %known, %now
  br i1 %equal, label %same, label %other
same:
  %j1 = add i64 %j, 1
  br label %compare
other:
  %g1 = add i64 %g, 1
  %again = icmp ult i64 %g1, %graphs
  br i1 %again, label %look, label %capture
replay:
  %o17 = getelementptr i64, ptr %c, i64 17
  %run = load ptr, ptr %o17
  %or = getelementptr i64, ptr %c, i64 18
  %times = load i64, ptr %or
  %times1 = add i64 %times, 1
  store i64 %times1, ptr %or
  %rs = call i32 %run(ptr %graph, ptr %stream)
  ret i32 %rs
capture:
  ; at the first calls, then as long as graphs are replayed more often than made
  %o26 = getelementptr i64, ptr %c, i64 26
  %made0 = load i64, ptr %o26
  %o18 = getelementptr i64, ptr %c, i64 18
  %replayed = load i64, ptr %o18
  %few = icmp ult i64 %made0, %graphs
  %four = mul i64 %made0, 4
  %worth = icmp ugt i64 %replayed, %four
  %do = or i1 %few, %worth
  %made1 = add i64 %made0, 1
  br i1 %do, label %record, label %plain
record:
  store i64 %made1, ptr %o26
  %o19 = getelementptr i64, ptr %c, i64 19
  %begin = load ptr, ptr %o19
  %o20 = getelementptr i64, ptr %c, i64 20
  %finish = load ptr, ptr %o20
  %o21 = getelementptr i64, ptr %c, i64 21
  %instantiate = load ptr, ptr %o21
  %o22 = getelementptr i64, ptr %c, i64 22
  %destroy = load ptr, ptr %o22
  %o23 = getelementptr i64, ptr %c, i64 23
  %drop = load ptr, ptr %o23
  %o24 = getelementptr i64, ptr %c, i64 24
  %turn = load i64, ptr %o24
  %bs = call i32 %begin(ptr %stream, i32 2)
  %bad = icmp ne i32 %bs, 0
  br i1 %bad, label %plain, label %begun
begun:
  %ls = call i64 @launch_program(ptr %table, i64 %count, ptr %slots, i64 %scratch, i64 %faults, ptr %stream, ptr %launch, ptr %maps, i64 %mapped, ptr %encode)
  %made = getelementptr i64, ptr %c, i64 25
  %fs = call i32 %finish(ptr %stream, ptr %made)
  %wrong = icmp ne i64 %ls, 0
  br i1 %wrong, label %failed, label %ended
failed:
  %lt = trunc i64 %ls to i32
  ret i32 %lt
ended:
  %bad2 = icmp ne i32 %fs, 0
  br i1 %bad2, label %never, label %finished
never:
  store i64 0, ptr %o15
  br label %plain
finished:
  %raw = load ptr, ptr %made
  %rows3 = add i64 %n, 1
  %at3 = mul i64 %turn, %rows3
  %row3 = getelementptr i64, ptr %kept, i64 %at3
  %oldest = load ptr, ptr %row3
  %has = icmp ne ptr %oldest, null
  br i1 %has, label %free, label %instance
free:
  store ptr null, ptr %row3
  %xs = call i32 %destroy(ptr %oldest)
  br label %instance
instance:
  %is = call i32 %instantiate(ptr %row3, ptr %raw, i64 0)
  %ds = call i32 %drop(ptr %raw)
  %bad3 = icmp ne i32 %is, 0
  br i1 %bad3, label %refused, label %keep
refused:
  store ptr null, ptr %row3
  store i64 0, ptr %o15
  br label %plain
keep:
  %y = phi i64 [ 0, %instance ], [ %y1, %keepone ]
  %kend = icmp eq i64 %y, %n
  br i1 %kend, label %launchit, label %keepone
keepone:
  %py = getelementptr i64, ptr %places, i64 %y
  %vy = load i64, ptr %py
  %y1 = add i64 %y, 1
  %ky = getelementptr i64, ptr %row3, i64 %y1
  store i64 %vy, ptr %ky
  br label %keep
launchit:
  %t1 = add i64 %turn, 1
  %wrap = icmp eq i64 %t1, %graphs
  %t2 = select i1 %wrap, i64 0, i64 %t1
  store i64 %t2, ptr %o24
  %ready = load ptr, ptr %row3
  %o17b = getelementptr i64, ptr %c, i64 17
  %runb = load ptr, ptr %o17b
  %rsb = call i32 %runb(ptr %ready, ptr %stream)
  ret i32 %rsb
plain:
  %ps = call i64 @launch_program(ptr %table, i64 %count, ptr %slots, i64 %scratch, i64 %faults, ptr %stream, ptr %launch, ptr %maps, i64 %mapped, ptr %encode)
  %pt = trunc i64 %ps to i32
  ret i32 %pt
}
"""
