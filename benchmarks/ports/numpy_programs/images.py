"""A picture of bytes: greys, negative, channels, threshold, histogram, blur."""
import numpy as np

img = (np.arange(24 * 24 * 3) * 7 % 256).reshape(24, 24, 3).astype(np.uint8)
gray = np.dot(img[..., :3], [0.2989, 0.5870, 0.1140])
red = img.copy()
red[:, :, (1, 2)] = 0
threshold = (gray > 128).astype(np.uint8) * 255
hist, bins = np.histogram(gray.flatten(), 16, [0, 256])
cdf = hist.cumsum()
pad = np.pad(gray, ((1, 1), (1, 1)), "edge")
blur = sum(pad[i:i + 24, j:j + 24] for i in range(3) for j in range(3)) / 9.0
bright = np.clip(img.astype(int) + 100, 0, 255).astype(np.uint8)
result = [gray, 255 - img, np.fliplr(img), red, threshold, hist, cdf * float(hist.max()) / cdf.max(), blur, bright]
