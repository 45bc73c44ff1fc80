"""Convolution, spectra, fits, histograms of a short signal."""
import numpy as np
x = np.array([1, 2, 3, 4, 5]); h = np.array([1, 0, -1])
out = [np.convolve(x, h), np.convolve(x, h, 'same'), np.convolve(x, np.ones(3)/3, mode='valid'), np.correlate(x, h, 'full')]
t = np.arange(0, 1, 1/64); sig = np.sin(2*np.pi*5*t) + .5*np.sin(2*np.pi*12*t)
S = np.fft.fft(sig); f = np.fft.fftfreq(len(sig), 1/64)
mag = np.abs(S)[:len(S)//2]; peaks = np.where(mag > mag.mean()*2)[0]
out += [f[peaks], mag]
win = np.hanning(16); frames = np.lib.stride_tricks.sliding_window_view(sig, 16)[::8]
out.append(np.abs(np.fft.rfft(frames * win, axis=1))**2)
p = np.polyfit(t, sig, 3); out += [p, np.polyval(p, t), np.roots([1, -6, 11, -6]).real]
A = np.vstack([t, np.ones(len(t))]).T
m, c = np.linalg.lstsq(A, sig, rcond=None)[0]; out += [m, c]
hist, edges = np.histogram(sig, bins=8, range=(-2.1, 1.9)); out += [hist, edges, np.digitize(sig, edges), np.gradient(sig, t), np.trapezoid(sig, t), np.interp([.1, .2], t, sig), np.diff(sig, n=2), np.cov(np.stack([sig, t])), np.corrcoef(sig, t)]
result = out
