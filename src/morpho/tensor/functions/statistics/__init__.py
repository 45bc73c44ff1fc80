"""Statistics: order statistics, reductions that leave NaN out, moments of several variables, histograms."""
