"""Noise taken out of a signal in the frequency domain."""
import numpy as np

n = 128
t = np.arange(n) / n
signal = np.sin(2 * np.pi * 3 * t) + 0.5 * np.sin(2 * np.pi * 7 * t)
noisy = signal + 0.2 * np.sin(2 * np.pi * 41 * t)
spectrum = np.fft.rfft(noisy)
power = np.abs(spectrum) ** 2 / n
frequencies = np.fft.rfftfreq(n, 1 / n)
spectrum = np.where(frequencies > 20, 0, spectrum)
clean = np.fft.irfft(spectrum, n)
window = np.hanning(9) / np.hanning(9).sum()
smooth = np.convolve(noisy, window, mode="same")
result = [clean, np.allclose(clean, signal, atol=1e-4), frequencies[np.argmax(power)], smooth]
