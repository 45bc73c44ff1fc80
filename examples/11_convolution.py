"""A small network for images in the manner of LeNet: convolutions, pooling, batch norm, two products.

    python examples/11_convolution.py

What follows a convolution runs on its tiles: the sum over the window, the bias, the batch norm and the relu are one
kernel, and the windows of an image are never written down. Weights are packed once.
"""

import numpy as np

import morpho as mo

generator = np.random.default_rng(5)


def weights(*shape):
    """Random weights of a layer in memory of their own, so that a compiled function takes them for constants."""
    inputs = int(np.prod(shape[1:])) if len(shape) > 1 else 16
    return mo.asarray((generator.standard_normal(shape) / np.sqrt(inputs)).astype(np.float32), copy=True)


first, first_bias = weights(6, 1, 5, 5), weights(6)
mean, variance = weights(6), mo.asarray(np.ones(6, np.float32), copy=True)
second, second_bias = weights(16, 6, 5, 5), weights(16)
hidden, hidden_bias = weights(400, 84), weights(84)
last, last_bias = weights(84, 10), weights(10)


def network(images):
    """images[N, 1, 28, 28] to the probabilities of 10 digits."""
    x = mo.relu(mo.batch_norm(mo.conv2d(images, first, first_bias, padding=2), mean, variance))
    x = mo.max_pool2d(x, 2)
    x = mo.avg_pool2d(mo.relu(mo.conv2d(x, second, second_bias)), 2)
    x = mo.relu(mo.reshape(x, (-1, 400)) @ hidden + hidden_bias)
    return mo.softmax(x @ last + last_bias)


predict = mo.compile(network, dynamic={"images": {0: mo.Dim("n", 1, 256)}})
images = mo.asarray(generator.standard_normal((32, 1, 28, 28), dtype=np.float32))
probabilities = predict(images).numpy()
print(predict.explain())
assert probabilities.shape == (32, 10) and np.allclose(probabilities.sum(axis=-1), 1, atol=1e-6)
alone = predict(images[7:8]).numpy()
assert alone.tobytes() == probabilities[7:8].tobytes(), "an image has the same bits alone and among others"
print(f"{predict.stats['kernels']} kernels for 4 layers, {predict.stats['recompiles']} recompiles for another batch")

slope = mo.grad(lambda kernel: mo.square(mo.conv2d(images, kernel, padding="same")).mean())(first)
print("the gradient of the first layer's weights:", slope.shape)
