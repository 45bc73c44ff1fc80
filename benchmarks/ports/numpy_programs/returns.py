"""Returns, volatility, drawdown and correlations of prices."""
import numpy as np

prices = np.array([100.0, 101.5, 99.8, 102.3, 104.1, 103.0, 105.7])
ret = np.diff(prices) / prices[:-1]
logret = np.log(prices[1:] / prices[:-1])
vol = np.std(logret, ddof=1) * np.sqrt(252)
cum = np.cumprod(1 + ret) - 1
ma = np.convolve(prices, np.ones(3) / 3, mode="valid")
peak = np.maximum.accumulate(prices)
drawdown = ((peak - prices) / peak).max()
cov = np.cov(np.vstack([ret, ret[::-1]]))
weights = np.array([0.4, 0.6])
risk = np.sqrt(weights.T @ cov @ weights)
npv = np.sum(np.array([-100.0, 40, 50, 60]) / (1.1 ** np.arange(4)))
result = [ret, vol, cum, ma, drawdown, np.corrcoef(ret, ret[::-1])[0, 1], risk, npv, np.percentile(ret, [5, 50, 95])]
