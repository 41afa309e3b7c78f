# What scripts/compile builds from compiled.c. The functions in it are found by name, by `compiled.also_in_c`.
BUILT_BESIDE: str
