"""expects: compute
remedy: the table of spectra computed once and kept, outside of the loop.

Brightness of stars through filters, with the spectra of all temperatures computed again for each filter.
"""
import sys

import morpho as mo

better = "better" in sys.argv
temperature = mo.linspace(3000.0, 30000.0, 1500).realise()
wave = mo.linspace(0.3, 2.5, 1500).realise()


@mo.compile
def spectra(temperature, wave):
    x = 14387.77 / (wave[None, :] * temperature[:, None])
    return 1.0 / (wave**5 * (mo.exp(x) - 1.0)) * (1.0 + 0.1 * mo.sin(40.0 * x) * mo.tanh(x) + 0.01 * mo.cos(9.0 * x))


through = mo.compile(lambda table, band: table @ band)
table = spectra(temperature, wave)
for number in range(60):
    band = mo.exp(-(((wave - 0.4 - 0.03 * number) / 0.05) ** 2))
    table = table if better else spectra(temperature, wave)
    light = through(table, band)
print(float(light.sum()))
