"""Why a request failed: the kind of an error, its figures, and replies that were cut without an error.

`failure.Failure` is the value, `classification.classify` makes it from a response or an exception. The wordings that it
knows are the rows of one table, `wordings`. Nothing is imported here: a session that meets no failure loads no table.
"""
