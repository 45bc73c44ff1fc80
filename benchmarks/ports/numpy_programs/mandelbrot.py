"""The Mandelbrot set by escape times, as NumPy's own quickstart writes it."""
import numpy as np


def mandelbrot(h, w, maxit=20, r=2):
    y, x = np.ogrid[-1.4:1.4:h * 1j, -2.0:0.8:w * 1j]
    c = x + y * 1j
    z = np.zeros_like(c)
    divtime = maxit + np.zeros(z.shape, dtype=int)
    for i in range(maxit):
        z = z**2 + c
        diverge = z * np.conj(z) > r**2
        div_now = diverge & (divtime == maxit)
        divtime[div_now] = i
        z[diverge] = r
    return divtime


result = [mandelbrot(16, 24)]
