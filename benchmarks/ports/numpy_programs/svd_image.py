"""Compress an image by singular values, with `fill_diagonal` of parts."""
import numpy as np
img = np.fromfunction(lambda i, j, c: ((i * 3 + j * 5 + c * 7) % 17) / 17.0, (32, 48, 3), dtype=float)
img_array = img / 255
red_array = img_array[:, :, 0]
img_gray = img_array @ [0.2126, 0.7152, 0.0722]
U, s, Vt = np.linalg.svd(img_gray)
Sigma = np.zeros((U.shape[1], Vt.shape[0]))
np.fill_diagonal(Sigma, s)
err = np.linalg.norm(img_gray - U @ Sigma @ Vt)
k = 5
approx = U @ Sigma[:, :k] @ Vt[:k, :]
img_t = np.transpose(img_array, (2, 0, 1))
U, s, Vt = np.linalg.svd(img_t)
Sigma = np.zeros((3, 32, 48))
for j in range(3):
    np.fill_diagonal(Sigma[j, :, :], s[j, :])
reconstructed = U @ Sigma @ Vt
print(reconstructed.min(), reconstructed.max())
approx_img = U @ Sigma[..., :k] @ Vt[..., :k, :]
result = [approx, err < 1e-3, reconstructed, np.transpose(approx_img, (1, 2, 0))]
