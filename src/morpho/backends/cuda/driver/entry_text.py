# ruff: noqa: E501 (lines of LLVM's language)
"""The function that a native entry calls like a kernel: a graph that is known, or addresses into slots and launches.

Its words are `native_call.Field`; the values of a call are their address, then the dynamic sizes of the program. With
sizes it finds their region first (`regions/`). Static programs are captured at their first calls, programs of
dynamic sizes when sizes and addresses come again; both later on as long as graphs are replayed more often than they are
made. The oldest one makes room.
"""

from __future__ import annotations

ENTRY_TEXT = """
define i1 @same_key(ptr %row, ptr %places, i64 %n, ptr %sizes, i64 %m) {
entry:
  br label %place
place:
  %j = phi i64 [ 0, %entry ], [ %j1, %alike ]
  %placed = icmp eq i64 %j, %n
  br i1 %placed, label %size, label %look
look:
  %j1 = add i64 %j, 1
  %k = getelementptr i64, ptr %row, i64 %j1
  %known = load i64, ptr %k
  %p = getelementptr i64, ptr %places, i64 %j
  %now = load i64, ptr %p
  %equal = icmp eq i64 %known, %now
  br i1 %equal, label %alike, label %other
alike:
  br label %place
size:
  %i = phi i64 [ 0, %place ], [ %i1, %fits ]
  %sized = icmp eq i64 %i, %m
  br i1 %sized, label %same, label %compare
compare:
  %i1 = add i64 %i, 1
  %at = add i64 %n, %i1
  %q = getelementptr i64, ptr %row, i64 %at
  %was = load i64, ptr %q
  %s = getelementptr i64, ptr %sizes, i64 %i
  %is = load i64, ptr %s
  %match = icmp eq i64 %was, %is
  br i1 %match, label %fits, label %other
fits:
  br label %size
same:
  ret i1 true
other:
  ret i1 false
}

define void @keep_key(ptr %row, ptr %places, i64 %n, ptr %sizes, i64 %m) {
entry:
  br label %place
place:
  %j = phi i64 [ 0, %entry ], [ %j1, %put ]
  %placed = icmp eq i64 %j, %n
  br i1 %placed, label %size, label %put
put:
  %j1 = add i64 %j, 1
  %p = getelementptr i64, ptr %places, i64 %j
  %now = load i64, ptr %p
  %k = getelementptr i64, ptr %row, i64 %j1
  store i64 %now, ptr %k
  br label %place
size:
  %i = phi i64 [ 0, %place ], [ %i1, %note ]
  %sized = icmp eq i64 %i, %m
  br i1 %sized, label %done, label %note
note:
  %i1 = add i64 %i, 1
  %s = getelementptr i64, ptr %sizes, i64 %i
  %is = load i64, ptr %s
  %at = add i64 %n, %i1
  %q = getelementptr i64, ptr %row, i64 %at
  store i64 %is, ptr %q
  br label %size
done:
  ret void
}

define i32 @launch_entry(ptr %places, ptr %values, i64 %r0, i64 %r1, i64 %c0, i64 %c1, ptr %none) {
entry:
  %c = load ptr, ptr %values
  %sizes = getelementptr i64, ptr %values, i64 1
  %setp = load ptr, ptr %c
  %o1 = getelementptr i64, ptr %c, i64 1
  %context = load ptr, ptr %o1
  %o2 = getelementptr i64, ptr %c, i64 2
  %n = load i64, ptr %o2
  %o3 = getelementptr i64, ptr %c, i64 3
  %which = load ptr, ptr %o3
  %current = call i32 %setp(ptr %context)
  %refused0 = icmp ne i32 %current, 0
  br i1 %refused0, label %outside, label %inside
outside:
  ret i32 %current
inside:
  %o7 = getelementptr i64, ptr %c, i64 7
  %scratch = load i64, ptr %o7
  %o8 = getelementptr i64, ptr %c, i64 8
  %faults = load i64, ptr %o8
  %o9 = getelementptr i64, ptr %c, i64 9
  %stream = load ptr, ptr %o9
  %o10 = getelementptr i64, ptr %c, i64 10
  %launch = load ptr, ptr %o10
  %o13 = getelementptr i64, ptr %c, i64 13
  %encode = load ptr, ptr %o13
  %o14 = getelementptr i64, ptr %c, i64 14
  %counter = load ptr, ptr %o14
  %o15 = getelementptr i64, ptr %c, i64 15
  %graphs = load i64, ptr %o15
  %o16 = getelementptr i64, ptr %c, i64 16
  %kept = load ptr, ptr %o16
  %o27 = getelementptr i64, ptr %c, i64 27
  %ask = load ptr, ptr %o27
  %o28 = getelementptr i64, ptr %c, i64 28
  %m = load i64, ptr %o28
  %o29 = getelementptr i64, ptr %c, i64 29
  %key = add i64 %n, %m
  %width = add i64 %key, 1
  %dynamic = icmp ne i64 %m, 0
  %graphed = icmp ne i64 %graphs, 0
  br i1 %graphed, label %look, label %prepare
look:
  %g = phi i64 [ 0, %inside ], [ %g1, %other ]
  %at = mul i64 %g, %width
  %row = getelementptr i64, ptr %kept, i64 %at
  %graph = load ptr, ptr %row
  %there = icmp ne ptr %graph, null
  br i1 %there, label %compare, label %other
compare:
  %same = call i1 @same_key(ptr %row, ptr %places, i64 %n, ptr %sizes, i64 %m)
  br i1 %same, label %replay, label %other
other:
  %g1 = add i64 %g, 1
  %again = icmp ult i64 %g1, %graphs
  br i1 %again, label %look, label %worth
replay:
  %o17 = getelementptr i64, ptr %c, i64 17
  %run = load ptr, ptr %o17
  %or = getelementptr i64, ptr %c, i64 18
  %times = load i64, ptr %or
  %times1 = add i64 %times, 1
  store i64 %times1, ptr %or
  %oc = getelementptr i64, ptr %c, i64 31
  %held = getelementptr i64, ptr %oc, i64 %g
  %launches = load i64, ptr %held
  %counted = load i64, ptr %counter
  %counted1 = add i64 %counted, %launches
  store i64 %counted1, ptr %counter
  %rs = call i32 %run(ptr %graph, ptr %stream)
  ret i32 %rs
worth:
  ; at the first calls, then as long as graphs are replayed more often than made
  %o26 = getelementptr i64, ptr %c, i64 26
  %made0 = load i64, ptr %o26
  %o18 = getelementptr i64, ptr %c, i64 18
  %replayed = load i64, ptr %o18
  %few = icmp ult i64 %made0, %graphs
  %four = mul i64 %made0, 4
  %often = icmp ugt i64 %replayed, %four
  %do = or i1 %few, %often
  %maybe = and i1 %do, %dynamic
  br i1 %maybe, label %past, label %prepare
past:
  ; sizes and addresses that came a few calls ago
  %h = phi i64 [ 0, %worth ], [ %h1, %earlier ]
  %hg = add i64 %graphs, %h
  %ha = mul i64 %hg, %width
  %hrow = getelementptr i64, ptr %kept, i64 %ha
  %met = call i1 @same_key(ptr %hrow, ptr %places, i64 %n, ptr %sizes, i64 %m)
  br i1 %met, label %prepare, label %earlier
earlier:
  %h1 = add i64 %h, 1
  %hmore = icmp ult i64 %h1, 4
  br i1 %hmore, label %past, label %remember
remember:
  %o30 = getelementptr i64, ptr %c, i64 30
  %seen = load i64, ptr %o30
  %turn0 = and i64 %seen, 3
  %seen1 = add i64 %seen, 1
  store i64 %seen1, ptr %o30
  %ng = add i64 %graphs, %turn0
  %na = mul i64 %ng, %width
  %nrow = getelementptr i64, ptr %kept, i64 %na
  call void @keep_key(ptr %nrow, ptr %places, i64 %n, ptr %sizes, i64 %m)
  br label %prepare
prepare:
  %capture = phi i1 [ false, %inside ], [ %do, %worth ], [ true, %past ], [ false, %remember ]
  br i1 %dynamic, label %search, label %static
static:
  %o4 = getelementptr i64, ptr %c, i64 4
  %slots0 = load ptr, ptr %o4
  %o5 = getelementptr i64, ptr %c, i64 5
  %table0 = load ptr, ptr %o5
  %o6 = getelementptr i64, ptr %c, i64 6
  %count0 = load i64, ptr %o6
  %o11 = getelementptr i64, ptr %c, i64 11
  %maps0 = load ptr, ptr %o11
  %o12 = getelementptr i64, ptr %c, i64 12
  %mapped0 = load i64, ptr %o12
  br label %fill
search:
  %asked = phi i32 [ 0, %prepare ], [ 1, %retry ]
  %first = load ptr, ptr %o29
  br label %try
try:
  %r = phi ptr [ %first, %search ], [ %next, %misfit ]
  %nomore = icmp eq ptr %r, null
  br i1 %nomore, label %unknown, label %fit
fit:
  %fits = call i64 @fit_region(ptr %r, ptr %sizes)
  %found = icmp ne i64 %fits, 0
  br i1 %found, label %region, label %misfit
misfit:
  %rn = getelementptr i64, ptr %r, i64 8
  %next = load ptr, ptr %rn
  br label %try
unknown:
  %answer = call i32 %ask(ptr %places, ptr %values, i32 %asked)
  %learnt = icmp eq i32 %answer, -3
  br i1 %learnt, label %retry, label %python
retry:
  br label %search
python:
  ret i32 %answer
region:
  %f9 = getelementptr i64, ptr %r, i64 9
  %table1 = load ptr, ptr %f9
  %f10 = getelementptr i64, ptr %r, i64 10
  %count1 = load i64, ptr %f10
  %f11 = getelementptr i64, ptr %r, i64 11
  %slots1 = load ptr, ptr %f11
  %f12 = getelementptr i64, ptr %r, i64 12
  %maps1 = load ptr, ptr %f12
  %f13 = getelementptr i64, ptr %r, i64 13
  %mapped1 = load i64, ptr %f13
  br label %fill
fill:
  %table = phi ptr [ %table0, %static ], [ %table1, %region ]
  %count = phi i64 [ %count0, %static ], [ %count1, %region ]
  %slots = phi ptr [ %slots0, %static ], [ %slots1, %region ]
  %maps = phi ptr [ %maps0, %static ], [ %maps1, %region ]
  %mapped = phi i64 [ %mapped0, %static ], [ %mapped1, %region ]
  br label %place
place:
  %i = phi i64 [ 0, %fill ], [ %i1, %placed ]
  %all = icmp eq i64 %i, %n
  br i1 %all, label %ready, label %one
one:
  %w = getelementptr i64, ptr %which, i64 %i
  %slot = load i64, ptr %w
  %read = icmp sge i64 %slot, 0
  br i1 %read, label %put, label %placed
put:
  %p = getelementptr i64, ptr %places, i64 %i
  %address = load i64, ptr %p
  %s = getelementptr i64, ptr %slots, i64 %slot
  store i64 %address, ptr %s
  br label %placed
placed:
  %i1 = add i64 %i, 1
  br label %place
ready:
  %before = load i64, ptr %counter
  %after = add i64 %before, %count
  store i64 %after, ptr %counter
  br i1 %capture, label %record, label %plain
record:
  %o26b = getelementptr i64, ptr %c, i64 26
  %made0b = load i64, ptr %o26b
  %made1 = add i64 %made0b, 1
  store i64 %made1, ptr %o26b
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
  %half = icmp eq i32 %fs, 0
  br i1 %half, label %unused, label %why
unused:
  %part = load ptr, ptr %made
  %us = call i32 %drop(ptr %part)
  br label %why
why:
  %lm = icmp eq i64 %ls, -1
  br i1 %lm, label %instead, label %told
told:
  %lt = trunc i64 %ls to i32
  ret i32 %lt
instead:
  ; an operand does not lie as its kernel needs
  %by = call i32 %ask(ptr %places, ptr %values, i32 2)
  ret i32 %by
ended:
  %bad2 = icmp ne i32 %fs, 0
  br i1 %bad2, label %never, label %finished
never:
  store i64 0, ptr %o15
  br label %plain
finished:
  %raw = load ptr, ptr %made
  %at3 = mul i64 %turn, %width
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
  call void @keep_key(ptr %row3, ptr %places, i64 %n, ptr %sizes, i64 %m)
  %oc2 = getelementptr i64, ptr %c, i64 31
  %held2 = getelementptr i64, ptr %oc2, i64 %turn
  store i64 %count, ptr %held2
  %t1 = add i64 %turn, 1
  %wrap = icmp eq i64 %t1, %graphs
  %t2 = select i1 %wrap, i64 0, i64 %t1
  store i64 %t2, ptr %o24
  %exec = load ptr, ptr %row3
  %o17b = getelementptr i64, ptr %c, i64 17
  %runb = load ptr, ptr %o17b
  %rsb = call i32 %runb(ptr %exec, ptr %stream)
  ret i32 %rsb
plain:
  %ps = call i64 @launch_program(ptr %table, i64 %count, ptr %slots, i64 %scratch, i64 %faults, ptr %stream, ptr %launch, ptr %maps, i64 %mapped, ptr %encode)
  %pm = icmp eq i64 %ps, -1
  br i1 %pm, label %instead, label %plainly
plainly:
  %pt = trunc i64 %ps to i32
  ret i32 %pt
}
"""
