"""`morpho plan`: plans as tables and pictures, and this machine measured for them."""
