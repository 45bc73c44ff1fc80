"""Gaussian naive Bayes on a few points."""
import numpy as np

X = np.array([[1.0, 2.0], [1.2, 1.7], [3.0, 4.0], [3.2, 4.4], [2.9, 3.9]])
y = np.array([0, 0, 1, 1, 1])
classes = np.unique(y)
n_classes = len(classes)
mean = np.zeros((n_classes, 2), dtype=np.float64)
var = np.zeros((n_classes, 2), dtype=np.float64)
priors = np.zeros(n_classes, dtype=np.float64)
for idx, c in enumerate(classes):
    X_c = X[y == c]
    mean[idx, :] = X_c.mean(axis=0)
    var[idx, :] = X_c.var(axis=0) + 1e-2
    priors[idx] = X_c.shape[0] / float(len(y))


def log_density(i, x):
    return np.sum(-((x - mean[i])**2) / (2 * var[i]) - 0.5 * np.log(2 * np.pi * var[i]))


predictions = []
for x in X:
    posteriors = [np.log(priors[i]) + log_density(i, x) for i in range(n_classes)]
    predictions.append(classes[np.argmax(posteriors)])
result = [np.array(predictions), mean, var]
