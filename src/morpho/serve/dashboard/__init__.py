"""The dashboard: runs live and past, pipelines, predictions and figures, on a page of this machine."""
