"""Small programs that each measure one thing in a fresh process and print one line of JSON. They need Morpho only."""
