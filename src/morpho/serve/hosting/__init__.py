"""The models behind a server: loaded when they are asked for, evicted by memory, replaced when their files change."""
