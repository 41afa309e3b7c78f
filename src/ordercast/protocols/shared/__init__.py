"""Parts that several protocols are made of: reliable links, received-sets, compact numbers."""
