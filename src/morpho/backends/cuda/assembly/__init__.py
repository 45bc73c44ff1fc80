"""From the text of a kernel to PTX, and what is checked of it on the way."""
