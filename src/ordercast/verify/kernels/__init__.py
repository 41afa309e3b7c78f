"""The promises as loops over int32 arrays: one promise a file, compiled by numba, callable without Spark.

Every kernel reads the columnar form of `ordercast.verify.columns` and writes only what it returns, so tasks may share
one memory-mapped copy. What a kernel finds is checked against a definition-level brute force by the tests.
"""
