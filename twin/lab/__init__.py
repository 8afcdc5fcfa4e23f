"""The imperative shell: disk, database, addresses, processes, many runs."""
