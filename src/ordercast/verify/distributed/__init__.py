"""The judge where rows live on many machines: stages of pure functions over tables of packed columns."""
