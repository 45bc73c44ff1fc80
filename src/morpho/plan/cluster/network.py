"""The links of a cluster file: a default, pairs or whole matrices, checked for contradictions and gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from morpho.base.units import format_bits_per_s, format_seconds, parse_bytes_per_s, parse_seconds
from morpho.plan.cluster.toml_tables import TomlTable

_FIELDS = {"bandwidth": (parse_bytes_per_s, "10Gbit/s"), "latency": (parse_seconds, "0.2ms")}
_SHOWN = {"bandwidth": format_bits_per_s, "latency": format_seconds}


class Network:
    """The matrices of bandwidth and latency, filled from the tables of a file."""

    def __init__(self, file: str, names: Sequence[str], groups: Mapping[str, Sequence[str]]) -> None:
        self.file, self.names, self.groups = file, list(names), groups
        size = range(len(names))
        # A bandwidth of 0 means that there is no line.
        self.values = {what: [[0.0 for _ in size] for _ in size] for what in _FIELDS}

    def read(self, default: Any, links: Any) -> None:
        """Fill in `[network]`, then each `[[link]]`, and check the whole."""
        table = self._table("[network]", {} if default is None else default, (*_FIELDS, "asymmetric"))
        asymmetric = table.data.get("asymmetric", False)
        if not isinstance(asymmetric, bool):
            table.complain(f"has asymmetric = {asymmetric!r}", "it is true or false")
        for what in _FIELDS:
            if what in table.data:
                self._default(table, what)
            elif len(table.data) > ("asymmetric" in table.data):
                table.complain(f"lacks the field {what!r}", f'add {what} = "{_FIELDS[what][1]}"')
        if not isinstance(links, list):
            self._table("link", links, ()).complain("is one table", "write [[link]], once for each pair")
        said: dict[tuple[int, int], tuple[int, tuple[float, float]]] = {}
        for position, entry in enumerate(links):
            self._link(position + 1, entry, said)
        if not asymmetric:
            self._check_symmetric(table)
        self._check_connected(table)

    def matrix(self, what: str) -> tuple[tuple[float, ...], ...]:
        """Bandwidth or latency, rows are senders."""
        return tuple(tuple(row) for row in self.values[what])

    def _table(self, place: str, data: Any, known: Sequence[str]) -> TomlTable:
        return TomlTable(self.file, place, data, known)

    def _default(self, table: TomlTable, what: str) -> None:
        """One value for all pairs, or a matrix with a row for every node."""
        value, size = table.data[what], len(self.names)
        parse, example = _FIELDS[what]
        if not isinstance(value, list):
            number = table.quantity(what, parse, example, zero=what == "latency")
            self.values[what] = [[number] * size for _ in range(size)]
            return
        if len(value) != size or any(not isinstance(row, list) or len(row) != size for row in value):
            table.complain(f"has a {what} that is not a matrix of {size} x {size}",
                           f"a row and a column for each of {', '.join(self.names)}")
        for i, row in enumerate(value):
            for j, cell in enumerate(row):
                if i != j:  # the diagonal means nothing
                    self.values[what][i][j] = table.parsed(f"{what}[{i}][{j}]", cell, parse, example, zero=True)

    def _link(self, number: int, entry: Any, said: dict[tuple[int, int], tuple[int, tuple[float, float]]]) -> None:
        table = self._table(f"link {number}", entry, ("between", "from", "to", *_FIELDS))
        directed = "from" in table.data or "to" in table.data
        if directed == ("between" in table.data):
            table.complain("needs either 'between' or 'from' and 'to'", 'write between = ["a", "b"]')
        if directed:
            ends = [table.text("from"), table.text("to")]
        else:
            ends = table.data["between"]
            if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(end, str) for end in ends):
                table.complain(f"has between = {ends!r}", 'name two nodes or groups, as in ["a", "b"]')
        values = tuple(table.quantity(what, *_FIELDS[what], zero=True) for what in _FIELDS)
        pairs = [(i, j) for i in self._members(table, ends[0]) for j in self._members(table, ends[1]) if i != j]
        if not pairs:
            table.complain(f"joins {ends[0]!r} with itself", "name two nodes, or a group of several")
        for i, j in pairs if directed else {*pairs, *((j, i) for i, j in pairs)}:
            earlier, before = said.setdefault((i, j), (number, (values[0], values[1])))
            if before != values:
                table.complain(f"contradicts link {earlier} about {self.names[i]} -> {self.names[j]}",
                               "say it once, or the same twice")
            for what, value in zip(_FIELDS, values):
                self.values[what][i][j] = value

    def _members(self, table: TomlTable, name: str) -> list[int]:
        if name in self.names:
            return [self.names.index(name)]
        if name not in self.groups:
            table.complain(f"names the unknown node {name!r}", f"the nodes are {', '.join(self.names)}")
        return [self.names.index(member) for member in self.groups[name]]

    def _check_symmetric(self, table: TomlTable) -> None:
        for what, matrix in self.values.items():
            for i, row in enumerate(matrix):
                for j in range(i):
                    if row[j] != matrix[j][i]:
                        here, there = (_SHOWN[what](value) if value or what == "latency" else "missing"
                                       for value in (matrix[j][i], row[j]))
                        table.complain(
                            f"is asymmetric: the {what} {self.names[j]} -> {self.names[i]} is {here}, and back {there}",
                            "use between = [...], or say asymmetric = true in [network]")

    def _check_connected(self, table: TomlTable) -> None:
        """Every node reaches every other, over whatever detour and in whichever direction lines go."""
        lines = self.values["bandwidth"]
        reached, todo = {0}, [0]
        while todo:
            i = todo.pop()
            for j in range(len(self.names)):
                if j not in reached and (lines[i][j] > 0 or lines[j][i] > 0):
                    reached.add(j)
                    todo.append(j)
        lost = [name for position, name in enumerate(self.names) if position not in reached]
        if lost:
            table.complain(f"leaves {', '.join(lost)} without a link to {self.names[0]}",
                           "add a [network] bandwidth and latency, or a [[link]]")
