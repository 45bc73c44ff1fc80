"""Who owns the zebra? Five houses, fifteen clues, one rule; its joins are ordered so that each clue filters at once.

    python examples/35_zebra.py
"""

import morpho as mo

KINDS = {  # variable -> what stands at that house, by kind
    "colour": ["Red", "Green", "Ivory", "Yellow", "Blue"],
    "nation": ["English", "Spaniard", "Ukrainian", "Norwegian", "Japanese"],
    "drink": ["Coffee", "Tea", "Milk", "Juice", "Water"],
    "smoke": ["Gold", "Kools", "Chesterfield", "Lucky", "Parliament"],
    "pet": ["Dog", "Snails", "Fox", "Horse", "Zebra"],
}
CLUES = """English = Red, Spaniard = Dog, Coffee = Green, Ukrainian = Tea, Green = Ivory + 1, Gold = Snails,
    Kools = Yellow, Milk = 3, Norwegian = 1, next(Chesterfield, Fox), next(Kools, Horse), Lucky = Juice, Japanese =
    Parliament, next(Norwegian, Blue)"""

houses = ", ".join(f"house({name})" for names in KINDS.values() for name in names)
apart = ", ".join(f"{one} != {two}" for names in KINDS.values() for n, one in enumerate(names) for two in names[n + 1:])
program = mo.logic.Program(f"""
    domain house = 1..5.
    next(X, Y) :- house(X), house(Y), (X = Y + 1 or Y = X + 1).
    answer({', '.join(KINDS['nation'])}, Water, Zebra) :- {CLUES}, {houses}, {apart}.
""")
(*nations, water, zebra), = program.run()["answer"]
print("the zebra's owner:", KINDS["nation"][nations.index(zebra)])
print("who drinks water: ", KINDS["nation"][nations.index(water)])
assert KINDS["nation"][nations.index(zebra)] == "Japanese" and KINDS["nation"][nations.index(water)] == "Norwegian"
