"""Functions of `mo` that are loaded when they are first asked for, by the file they are in."""

from __future__ import annotations

_NAMES = {
    "arranging.axes": "flatten fliplr flipud ravel rot90 swapaxes unflatten",
    "arranging.diagonals": "diag diag_embed diag_indices diagflat diagonal tril_indices triu_indices",
    "arranging.editing": "append block choose compress delete insert put_along_axis select",
    "arranging.joining": "atleast_1d atleast_2d atleast_3d column_stack dstack hstack vstack",
    "arranging.splitting": "array_split chunk hsplit split vsplit",
    "calculus.arithmetic": "allclose angle array_equal cbrt deg2rad divmod fmax fmin fmod heaviside isclose lcm lerp "
                           "rad2deg rsqrt sinc",
    "calculus.curves": "cumulative_trapezoid gradient interp kron polyval trapezoid vander",
    "calculus.distances": "cdist pdist",
    "calculus.parts": "frexp ldexp modf unwrap",
    "calculus.running": "cummax cummin logcumsumexp",
    "counting.histograms": "bincount bucketize digitize histogram histogram2d histogram_bin_edges",
    "counting.segments": "scatter_reduce segment_max segment_mean segment_min segment_prod segment_sum",
    "neural.rearranged": "channel_shuffle fold grid_sample pixel_shuffle pixel_unshuffle unfold",
    "neural.volumes": "conv3d conv_transpose3d",
    "neural.windows": "avg_pool3d max_pool3d",
    "signals.convolutions": "convolve correlate",
    "signals.short_time": "istft stft",
    "signals.tapers": "bartlett_window blackman_window hamming_window hann_window kaiser_window",
    "special": "digamma erfinv i0 lgamma logit polygamma xlogy",
    "statistics.choosing": "argpartition argwhere flatnonzero intersect1d isin partition setdiff1d topk union1d unique "
                           "unique_consecutive unravel_index",
    "statistics.missing": "nan_to_num nanargmax nanargmin nanmax nanmean nanmin nanprod nanstd nansum nanvar",
    "statistics.moments": "average corrcoef cov ptp",
    "statistics.quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
}
LATE = {name: (f"morpho.tensor.functions.{home}", name) for home, names in _NAMES.items() for name in names.split()}
