"""`mo.debug`, `mo.testing`, `mo.extend`, `mo.tasks`, measuring thresholds, names of other libraries."""
