"""expects: cold
remedy: a cache folder that is kept; fewer functions

Features for a model of house prices: fifty formulas over the columns of a small table, each evaluated once.
"""

import numpy as np

import morpho as mo

HOUSES = 2_000

rng = np.random.default_rng(101)
columns = {name: mo.asarray(rng.uniform(low, high, HOUSES).astype(np.float32)) for name, low, high in (
    ("area", 30, 300), ("rooms", 1, 9), ("age", 0, 120), ("distance", 0.1, 30), ("floor", 0, 12))}

ONE_COLUMN = {
    "log": lambda x: mo.log1p(x),
    "root": lambda x: mo.sqrt(x + 0.25),
    "square": lambda x: x * x / 100.0,
    "score": lambda x: (x - x.mean()) / mo.std(x),
    "saturating": lambda x: x / (x + x.mean()),
    "bell": lambda x: mo.exp(-(((x - x.mean()) / mo.std(x)) ** 2)),
}
TWO_COLUMNS = {
    "ratio": lambda a, b: a / (b + 1.0),
    "product": lambda a, b: mo.log1p(a * b),
}


def features() -> dict[str, np.ndarray]:
    """Every formula on every column or pair of columns."""
    made = {}
    for column, values in columns.items():
        for name, formula in ONE_COLUMN.items():
            made[f"{name}({column})"] = mo.compile(lambda x, formula=formula: formula(x))(values).numpy()
    names = list(columns)
    for first, second in ((a, b) for a in names for b in names if a < b):
        for name, formula in TWO_COLUMNS.items():
            together = mo.compile(lambda a, b, formula=formula: formula(a, b))
            made[f"{name}({first}, {second})"] = together(columns[first], columns[second]).numpy()
    return made


def main() -> None:
    made = features()
    price = np.log(columns["area"].numpy()) - 0.01 * columns["distance"].numpy() + rng.normal(0, 0.1, HOUSES)
    useful = {name: abs(np.corrcoef(values, price)[0, 1]) for name, values in made.items()}
    for name in sorted(useful, key=useful.get, reverse=True)[:5]:
        print(f"{name:28s} {useful[name]:.3f}")
    print(f"{len(made)} features")


if __name__ == "__main__":
    main()
