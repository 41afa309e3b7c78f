"""The web door: browsers, curl and whatever speaks HTTP publish, subscribe and read history through the tree."""
